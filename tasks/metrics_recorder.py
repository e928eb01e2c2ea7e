"""Interface through which tasks report their metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, Protocol

from typing_extensions import override

from config.tracing import span

TaskOutcome = Literal["done", "stale", "passing", "failed"]
"""How a task ended. stale: a newer revision had won; passing: a transient error, retried later."""

QueryOutcome = Literal["hit", "no_hit", "failed"]

AnswerRecorder = Literal["query", "reconciler"]
"""What recorded an answered query: its own task, or the reconciler after that failed."""

SubmissionOutcome = Literal["recorded", "refused", "replied", "dropped"]
"""Result of a queue message or of a reply to one; dropped: the reply queue does not exist."""

SpanOutcome = Literal["exported", "dropped"]
"""What became of the spans of traces; dropped: the collector never had them."""

ModelFailure = Literal["invalid", "unavailable", "budget", "misconfigured", "store"]
"""Why the language model gave no answer; store: its answers could not be read or written."""


class MetricsRecorder(Protocol):
    """Records metrics. Every call is cheap, and none raises."""

    def record_task(self, task: str, outcome: TaskOutcome, seconds: float) -> None:
        """A task ended; `seconds` includes its retries."""
        ...

    def record_retry(self, task: str) -> None:
        """A task failed with a transient error and is retried."""
        ...

    def record_stage(self, task: str, stage: str, seconds: float) -> None:
        """A stage of a task ended without an error."""
        ...

    def record_query(self, answered: QueryOutcome, degraded: bool) -> None:
        """A query ended; degraded: answered without a store or stage that was unavailable."""
        ...

    def record_answers(self, by: AnswerRecorder, count: int) -> None:
        """Answered queries were stored for outcomes and usage."""
        ...

    def record_outcome(self, kind: str, by: str) -> None:
        """A reported outcome was stored; kind, by: values of OutcomeKind and Reporter."""
        ...

    def record_dead_letter(self, task: str) -> None:
        """A task failed for good, or a message (task "") could not be read."""
        ...

    def record_encoding(self, texts: int, tokens: int, seconds: float) -> None:
        """The encoder turned texts into vectors."""
        ...

    def record_submission(self, outcome: SubmissionOutcome) -> None:
        """A queue message, or a reply to one, was processed."""
        ...

    def record_spans(self, outcome: SpanOutcome, count: int) -> None:
        """Spans of traces were exported or lost."""
        ...

    def record_model_calls(
        self, stage: str, calls: int, prompt_tokens: int, completion_tokens: int, seconds: float
    ) -> None:
        """The language model was asked one question, in as many calls as it took."""
        ...

    def record_stored_answer(self, stage: str) -> None:
        """An answer was read from the store instead of asking the language model."""
        ...

    def record_model_failure(self, stage: str, kind: ModelFailure) -> None:
        """A question to the language model got no answer."""
        ...


class NullMetrics(MetricsRecorder):
    """Discards all metrics."""

    @override
    def record_task(self, task: str, outcome: TaskOutcome, seconds: float) -> None:
        pass

    @override
    def record_retry(self, task: str) -> None:
        pass

    @override
    def record_stage(self, task: str, stage: str, seconds: float) -> None:
        pass

    @override
    def record_query(self, answered: QueryOutcome, degraded: bool) -> None:
        pass

    @override
    def record_answers(self, by: AnswerRecorder, count: int) -> None:
        pass

    @override
    def record_outcome(self, kind: str, by: str) -> None:
        pass

    @override
    def record_dead_letter(self, task: str) -> None:
        pass

    @override
    def record_encoding(self, texts: int, tokens: int, seconds: float) -> None:
        pass

    @override
    def record_submission(self, outcome: SubmissionOutcome) -> None:
        pass

    @override
    def record_spans(self, outcome: SpanOutcome, count: int) -> None:
        pass

    @override
    def record_model_calls(
        self, stage: str, calls: int, prompt_tokens: int, completion_tokens: int, seconds: float
    ) -> None:
        pass

    @override
    def record_stored_answer(self, stage: str) -> None:
        pass

    @override
    def record_model_failure(self, stage: str, kind: ModelFailure) -> None:
        pass


@contextmanager
def time_stage(metrics: MetricsRecorder, task: str, stage: str) -> Iterator[None]:
    """Record how long the block took, unless it raises; it is a span."""
    started = time.perf_counter()
    with span(f"{task.removeprefix('skillbus.')} {stage}"):
        yield
    metrics.record_stage(task, stage, time.perf_counter() - started)
