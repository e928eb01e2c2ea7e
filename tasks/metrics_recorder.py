"""Interface through which tasks report their metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, Protocol

from typing_extensions import override

from config.tracing import span

TaskOutcome = Literal["done", "stale", "passing", "failed"]
"""Outcome of a task. stale: a newer revision had won; passing: a transient error, retried later."""

QueryOutcome = Literal["hit", "no_hit", "failed"]

AnswerRecorder = Literal["query", "reconciler"]
"""Recorder of an answered query: its own task, or the reconciler after that task failed."""

SubmissionOutcome = Literal["recorded", "refused", "replied", "dropped"]
"""Result of a queue message or of a reply to one; dropped: the reply queue does not exist."""

SpanOutcome = Literal["exported", "dropped"]
"""Result of the export of spans; dropped: the collector never received them."""

ModelFailure = Literal["invalid", "unavailable", "budget", "misconfigured", "store"]
"""Reason why the language model gave no answer; store: its answers could not be read or written."""


class MetricsRecorder(Protocol):
    """Records metrics. Every call is cheap, and none raises."""

    def record_task(self, task: str, outcome: TaskOutcome, seconds: float) -> None:
        """Record the end of a task; `seconds` includes its retries."""
        ...

    def record_retry(self, task: str) -> None:
        """Record a transient error of a task that is retried."""
        ...

    def record_stage(self, task: str, stage: str, seconds: float) -> None:
        """Record a stage of a task that ended without an error."""
        ...

    def record_query(self, answered: QueryOutcome, degraded: bool) -> None:
        """Record the end of a query; degraded: answered without an unavailable store or stage."""
        ...

    def record_answers(self, by: AnswerRecorder, count: int) -> None:
        """Record answered queries that were stored for outcomes and usage."""
        ...

    def record_outcome(self, kind: str, by: str) -> None:
        """Record a stored outcome; kind, by: values of OutcomeKind and Reporter."""
        ...

    def record_dead_letter(self, task: str) -> None:
        """Record a task that failed permanently, or a message (task "") that could not be read."""
        ...

    def record_encoding(self, texts: int, tokens: int, seconds: float) -> None:
        """Record texts that the encoder turned into vectors."""
        ...

    def record_submission(self, outcome: SubmissionOutcome) -> None:
        """Record a processed queue message, or a reply to one."""
        ...

    def record_spans(self, outcome: SpanOutcome, count: int) -> None:
        """Record spans of traces that were exported or lost."""
        ...

    def record_model_calls(
        self, stage: str, calls: int, prompt_tokens: int, completion_tokens: int, seconds: float
    ) -> None:
        """Record one question to the language model, with all its calls."""
        ...

    def record_stored_answer(self, stage: str) -> None:
        """Record an answer that was read from the store instead of asking the language model."""
        ...

    def record_model_failure(self, stage: str, kind: ModelFailure) -> None:
        """Record a question to the language model without an answer, or whose answer or cost could
        not be stored."""
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
    """Record the duration of the block as a stage, unless it raises; trace it as a span."""
    started = time.perf_counter()
    with span(f"{task.removeprefix('skillbus.')} {stage}"):
        yield
    metrics.record_stage(task, stage, time.perf_counter() - started)
