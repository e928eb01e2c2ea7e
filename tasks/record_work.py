"""Functions that record the work of tasks, for display; a failure to record fails no task."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import structlog

from config.errors import SkillbusError
from tasks.ingest.coalesce import EventBatch
from tasks.journal.work_records import (
    MAX_REASON_CHARACTERS,
    CountKind,
    TaskRun,
    duration_bucket,
)
from tasks.metrics_recorder import TaskOutcome
from tasks.policies import TaskPolicy
from tasks.services import Services

log = structlog.get_logger()


def record_run(
    services: Services,
    policy: TaskPolicy,
    started: float,
    outcome: TaskOutcome,
    items: int,
    trace_ids: Sequence[str],
    *,
    attempts: int = 1,
    error: BaseException | None = None,
) -> None:
    """Record a run of a task that ends now. started: seconds since the epoch. error: the last error
    of its attempts."""
    run = TaskRun(
        policy.name,
        started,
        time.time(),
        outcome,
        items,
        attempts,
        "" if error is None else type(error).__name__,
        "" if error is None else str(error)[:MAX_REASON_CHARACTERS],
    )
    with _logged():
        services.journal.add_task_run(run, trace_ids)


def record_batch(
    services: Services,
    policy: TaskPolicy,
    batch: EventBatch,
    started: float,
    outcome: TaskOutcome,
    error: BaseException | None = None,
) -> None:
    """Record that a batch of events was carried out, under the trace of each event."""
    events = len(batch.event_ids)
    record_run(services, policy, started, outcome, events, batch.trace_ids, error=error)
    if outcome != "passing":
        with _logged():
            services.journal.count_work({("event", outcome): events})


def record_searchable(services: Services, requested_seqs: Sequence[int]) -> None:
    """Record the time from their events to the publication of skills now.

    requested_seqs: one for each skill; skills whose request is no longer known are left out.
    """
    now = time.time()
    with _logged():
        requests = services.coordinator.get_ingest_requests(sorted(set(requested_seqs)))
        counts: Counter[tuple[CountKind, str]] = Counter(
            ("searchable", str(duration_bucket(now - requests[seq].since)))
            for seq in requested_seqs
            if seq in requests
        )
        if counts:
            services.journal.count_work(counts)


@contextmanager
def _logged() -> Iterator[None]:
    try:
        yield
    except SkillbusError as error:
        log.warning("work could not be recorded", reason=str(error))
