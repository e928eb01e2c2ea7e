"""Run one task: count its starts, retry it, record its metrics, and keep dead letters."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog
from structlog.contextvars import get_contextvars
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    retry_if_not_exception_type,
    stop_after_attempt,
    stop_after_delay,
    wait_fixed,
)

from config import tracing
from config.errors import SkillbusError, StaleError, TransientError
from tasks.ingest.event_outcome import fail_events
from tasks.ingest.pipeline import INGEST_PIPELINE
from tasks.journal.protocol import DeadLetter, new_dead_letter_id, repeated_work_letter_id
from tasks.message import TRACE_HEADER
from tasks.metrics_recorder import TaskOutcome
from tasks.outcomes.record_outcomes import record_outcomes
from tasks.outcomes.usage.roll_up import roll_up
from tasks.policies import (
    EMBED_SECTIONS,
    EMBED_SKILLS,
    FETCH,
    LINK,
    MAINTAIN,
    PLAN,
    QUERY,
    RECORD_OUTCOMES,
    REFINE,
    ROLL_UP,
    Deadline,
    DeadlineExceededError,
    PoisonTaskError,
    TaskPolicy,
)
from tasks.query.query_task import fail_query, run_query
from tasks.record_work import record_run
from tasks.services import Services
from tasks.sources.protocol import SourceMissingError
from tasks.task import TaskDefinition

log = structlog.get_logger()

TASK_DEFINITIONS = {
    task.policy.name: task
    for task in (
        *INGEST_PIPELINE,
        TaskDefinition(RECORD_OUTCOMES, record_outcomes, on_failure=fail_events),
        TaskDefinition(ROLL_UP, roll_up),
        TaskDefinition(QUERY, run_query, on_failure=fail_query),
    )
}

_UNRECORDED = (PLAN, FETCH, QUERY, MAINTAIN, ROLL_UP)
"""Tasks whose runs are not recorded here: the first two record each batch of events, the other ones
belong to no event."""

_REPEATED = (EMBED_SKILLS, EMBED_SECTIONS, REFINE, LINK, MAINTAIN, ROLL_UP)
"""Tasks that are sent again although they failed permanently, since the stores hold their work."""

_FINISH_TIMEOUT_SECONDS = 120.0
_FINISH_RETRY_SECONDS = 0.5


def run_task(
    services: Services, policy: TaskPolicy, task_id: str, ids: Sequence[str]
) -> dict[str, object]:
    """Run a task with its retries; returns its result, `{"stale": reason}` after a StaleError.

    Raises the last error of the task, PoisonTaskError if the task was started too often before.
    """
    started = time.perf_counter()
    outcome: TaskOutcome = "failed"
    attempts = _Attempts()
    starts = _record_start(services, policy, task_id, ids)
    try:
        if starts > policy.max_deliveries:
            raise PoisonTaskError(
                f"started {starts - 1} times, and its worker died or hung each time"
            )
        result = _run_with_retries(services, policy, ids, attempts)
        outcome = "stale" if "stale" in result else "done"
        seconds = round(time.perf_counter() - started, 4)
        log.info("task done", seconds=seconds, **_summarize_result(result))
        return result
    except Exception as error:
        attempts.error = error
        if isinstance(error, TransientError):
            outcome = "passing"
        raise
    finally:
        seconds = time.perf_counter() - started
        services.metrics.record_task(policy.name, outcome, seconds)
        _record_finish(services, policy, task_id, ids)
        if policy not in _UNRECORDED:
            trace_id = str(get_contextvars().get(TRACE_HEADER, task_id))
            record_run(
                services,
                policy,
                time.time() - seconds,
                outcome,
                len(ids),
                [trace_id],
                attempts=attempts.count,
                error=attempts.error,
            )


def _summarize_result(result: dict[str, object]) -> dict[str, object]:
    """Return a task's result for its log line; a bundle appears without its texts."""
    bundle = result.get("bundle")
    if not isinstance(bundle, dict):
        return result
    summary = {name: bundle[name] for name in ("status", "tokens", "degraded")}
    return {"state": result["state"], "skills": len(bundle["skills"]), **summary}


@dataclass(slots=True)
class _Attempts:
    """The attempts of a run so far, and the error of the last failed one."""

    count: int = 1
    error: BaseException | None = None


def _run_with_retries(
    services: Services, policy: TaskPolicy, ids: Sequence[str], attempts: _Attempts
) -> dict[str, object]:
    """Return the task's result, after retries of transient errors other than a missed deadline or
    a missing source.

    Retries run here rather than as new messages: brokers keep messages with a delay in the memory
    of workers, or deliver them twice.
    """
    definition = TASK_DEFINITIONS[policy.name]
    backoff = policy.make_backoff()

    def before_attempt(state: RetryCallState) -> None:
        attempts.count = state.attempt_number
        if state.attempt_number > 1 and definition.counts_itself:
            services.coordinator.add_pending(policy.name, 1)

    def before_sleep(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        attempts.error = error
        log.warning("task is retried", reason=str(error))
        tracing.add_event("retry", {"error.type": type(error).__qualname__})
        services.metrics.record_retry(policy.name)

    retrying = Retrying(
        retry=retry_if_exception_type(TransientError)
        & retry_if_not_exception_type((DeadlineExceededError, SourceMissingError)),
        stop=stop_after_attempt(policy.max_retries + 1),
        wait=lambda _: backoff.pause(),
        sleep=_sleep_until_stopping(services),
        before=before_attempt,
        before_sleep=before_sleep,
        reraise=True,
    )
    try:
        return retrying(lambda: definition.run(services, Deadline(policy.time_limit), ids))
    except StaleError as error:
        attempts.error = error
        return {"stale": str(error)}


def _sleep_until_stopping(services: Services) -> Callable[[float], None]:
    """Return a function that sleeps between attempts, and raises TransientError once the process
    stops."""

    def sleep(seconds: float) -> None:
        if services.stopping.wait(seconds):
            raise TransientError("the process is stopping")

    return sleep


def _record_start(services: Services, policy: TaskPolicy, task_id: str, ids: Sequence[str]) -> int:
    """Record that the task runs; returns how often it was started without finishing."""
    backoff = policy.make_backoff()
    retrying = Retrying(
        retry=retry_if_exception_type(TransientError),
        stop=stop_after_attempt(policy.max_retries + 1),
        wait=lambda _: backoff.pause(),
        sleep=_sleep_until_stopping(services),
        reraise=True,
    )
    return retrying(services.coordinator.start_task, policy.name, task_id, ids)


def _record_finish(
    services: Services, policy: TaskPolicy, task_id: str, ids: Sequence[str]
) -> None:
    """Record that the task no longer runs.

    Retried for long, since a task that seems to run delays the tasks that follow it.
    """
    retrying = Retrying(
        retry=retry_if_exception_type(TransientError),
        stop=stop_after_delay(_FINISH_TIMEOUT_SECONDS),
        wait=wait_fixed(_FINISH_RETRY_SECONDS),
        sleep=_sleep_until_stopping(services),
        reraise=True,
    )
    try:
        retrying(services.coordinator.finish_task, policy.name, task_id, ids)
    except TransientError as error:
        # The task's work is done. Its record is dropped once the task counts as stalled.
        log.warning("the end of a task could not be recorded", reason=str(error))


def handle_failure(
    services: Services, policy: TaskPolicy, task_id: str, ids: Sequence[str], error: BaseException
) -> None:
    """Act on a task that failed permanently: its own failure handler, and a dead letter.

    Queries and batches of several ids get no dead letter: a query's failure is in the journal, and
    batches are split.
    """
    on_failure = TASK_DEFINITIONS[policy.name].on_failure
    may_pass = isinstance(error, TransientError)
    if policy.name != QUERY.name and (on_failure is None or may_pass):
        services.coordinator.task_error = str(error)
    if on_failure is not None:
        on_failure(services, ids, error)
    if policy.name != QUERY.name and not may_pass and len(ids) <= 1:
        _add_dead_letter(services, policy, task_id, ids, error)


def _add_dead_letter(
    services: Services, policy: TaskPolicy, task_id: str, ids: Sequence[str], error: BaseException
) -> None:
    now = time.time()
    services.journal.add_dead_letter(
        DeadLetter(
            repeated_work_letter_id(policy.name, ids)
            if policy in _REPEATED
            else new_dead_letter_id(now),
            policy.name,
            tuple(ids),
            str(error) if isinstance(error, SkillbusError) else f"{type(error).__name__}: {error}",
            policy.max_deliveries if isinstance(error, PoisonTaskError) else 1,
            get_contextvars().get(TRACE_HEADER, task_id),
            "",
            now,
        )
    )
    services.metrics.record_dead_letter(policy.name)
