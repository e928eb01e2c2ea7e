"""What tasks tell of themselves, to whoever keeps figures of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, Protocol

TaskOutcome = Literal["done", "stale", "passing", "failed"]
"""How a task ended: stale work was overtaken, a passing failure is tried again later."""

QueryOutcome = Literal["hit", "no_hit", "failed"]

SubmissionOutcome = Literal["recorded", "refused", "replied", "dropped"]
"""What became of a message or a reply; dropped: a reply for which there is no queue."""


class MetricsRecorder(Protocol):
    """Takes in what happened; every call is cheap, and none fails."""

    def record_task(self, task: str, outcome: TaskOutcome, seconds: float) -> None:
        """A task came to an end, its own retries included."""
        ...

    def record_retry(self, task: str) -> None:
        """A task failed for a reason that may pass, and is tried again."""
        ...

    def record_stage(self, task: str, stage: str, seconds: float) -> None:
        """A stage of a task came to an end."""
        ...

    def record_query(self, answered: QueryOutcome, degraded: bool) -> None:
        """A query was answered; degraded: with what was left, since something was away."""
        ...

    def record_dead_letter(self, task: str) -> None:
        """A task failed for good, or a message (task "") could not be read."""
        ...

    def record_encoding(self, texts: int, tokens: int, seconds: float) -> None:
        """The encoder turned texts into vectors."""
        ...

    def record_submission(self, outcome: SubmissionOutcome) -> None:
        """A message from a queue, or a reply to one, was dealt with."""
        ...


class NullMetrics:
    """Keeps nothing."""

    def record_task(self, task: str, outcome: TaskOutcome, seconds: float) -> None:
        """Nothing."""

    def record_retry(self, task: str) -> None:
        """Nothing."""

    def record_stage(self, task: str, stage: str, seconds: float) -> None:
        """Nothing."""

    def record_query(self, answered: QueryOutcome, degraded: bool) -> None:
        """Nothing."""

    def record_dead_letter(self, task: str) -> None:
        """Nothing."""

    def record_encoding(self, texts: int, tokens: int, seconds: float) -> None:
        """Nothing."""

    def record_submission(self, outcome: SubmissionOutcome) -> None:
        """Nothing."""


@contextmanager
def time_stage(metrics: MetricsRecorder, task: str, stage: str) -> Iterator[None]:
    """Measure a stage that comes to a good end."""
    started = time.perf_counter()
    yield
    metrics.record_stage(task, stage, time.perf_counter() - started)
