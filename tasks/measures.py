"""What tasks tell of themselves, to whoever keeps figures of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, Protocol

Outcome = Literal["done", "stale", "passing", "failed"]
"""How a task ended: stale work was overtaken, a passing failure is tried again later."""

Answered = Literal["hit", "no_hit", "failed"]

Submitted = Literal["recorded", "refused", "replied", "dropped"]
"""What became of a message or a reply; dropped: a reply for which there is no queue."""


class Measures(Protocol):
    """Takes in what happened; every call is cheap, and none fails."""

    def task_ended(self, task: str, outcome: Outcome, seconds: float) -> None:
        """A task came to an end, its own retries included."""
        ...

    def task_retried(self, task: str) -> None:
        """A task failed for a reason that may pass, and is tried again."""
        ...

    def stage_ended(self, task: str, stage: str, seconds: float) -> None:
        """A stage of a task came to an end."""
        ...

    def query_answered(self, answered: Answered, degraded: bool) -> None:
        """A query was answered; degraded: with what was left, since something was away."""
        ...

    def letter_buried(self, task: str) -> None:
        """A task failed for good, or a message (task "") could not be read."""
        ...

    def encoded(self, texts: int, tokens: int, seconds: float) -> None:
        """The encoder turned texts into vectors."""
        ...

    def submitted(self, outcome: Submitted) -> None:
        """A message from a queue, or a reply to one, was dealt with."""
        ...


class NoMeasures:
    """Keeps nothing."""

    def task_ended(self, task: str, outcome: Outcome, seconds: float) -> None:
        """Nothing."""

    def task_retried(self, task: str) -> None:
        """Nothing."""

    def stage_ended(self, task: str, stage: str, seconds: float) -> None:
        """Nothing."""

    def query_answered(self, answered: Answered, degraded: bool) -> None:
        """Nothing."""

    def letter_buried(self, task: str) -> None:
        """Nothing."""

    def encoded(self, texts: int, tokens: int, seconds: float) -> None:
        """Nothing."""

    def submitted(self, outcome: Submitted) -> None:
        """Nothing."""


@contextmanager
def timed(measures: Measures, task: str, stage: str) -> Iterator[None]:
    """Measure a stage that comes to a good end."""
    started = time.perf_counter()
    yield
    measures.stage_ended(task, stage, time.perf_counter() - started)
