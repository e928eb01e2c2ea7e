"""Functions that record the outcome of events in the journal."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from config.errors import PermanentError, TransientError, UsageError
from graph.records import SkillState
from tasks.ingest.coalesce import EventBatch
from tasks.services import Services

log = structlog.get_logger()


def record_outcome(services: Services, batch: EventBatch, outcome: dict[str, object]) -> None:
    """Record a batch's events as done; those that named a skill which does not exist as failed."""
    others = {"also_traces": batch.trace_ids[1:]} if batch.trace_ids[1:] else {}
    log.info("event carried out", events=len(batch.event_ids), **outcome, **others)
    entries = (
        services.graph.get_entries(list(batch.expected_skills.values()))
        if batch.expected_skills
        else ()
    )
    existing = {entry.skill_id for entry in entries if entry.state is not SkillState.REMOVED}
    for event_id in batch.event_ids:
        skill_id = batch.expected_skills.get(event_id)
        if skill_id is None or skill_id in existing:
            services.journal.finish_job(event_id, outcome)
        else:
            services.journal.fail_job(event_id, f"no skill {skill_id} in its source", usage=True)


def fail_batch(
    services: Services, batch: EventBatch, error: Exception, source_id: str = ""
) -> None:
    """Record a batch's events as failed with an error. source_id: named in the reason if given."""
    logged = batch.event_ids[:10]
    if not isinstance(error, PermanentError):
        log.error("event failed unexpectedly", event_ids=logged, exc_info=error)
        fail_events(services, batch.event_ids, error)
        return
    reason = f"{source_id}: {error}" if source_id else str(error)
    log.warning("event failed", event_ids=logged, reason=reason)
    usage = isinstance(error, UsageError)
    fail_events_with_reason(services, batch.event_ids, reason, usage=usage)


def fail_events(services: Services, event_ids: Sequence[str], error: BaseException) -> None:
    """Record events as failed after an unexpected error.

    After a TransientError they stay accepted, and the reconciler sends them again.
    """
    if isinstance(error, TransientError):
        return
    fail_events_with_reason(
        services, event_ids, f"failed unexpectedly: {type(error).__name__}: {error}"
    )


def fail_events_with_reason(
    services: Services, event_ids: Sequence[str], reason: str, *, usage: bool = False
) -> None:
    """Record events as failed, all for one reason. usage: as for `fail_job` of the journal.

    In a process that stops they stay accepted: its stores close while tasks still run.
    """
    if services.stopping.is_set():
        return
    for event_id in event_ids:
        services.journal.fail_job(event_id, reason, usage=usage)
