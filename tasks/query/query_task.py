"""The query task: answers a recorded query once, and records its outcome in the journal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import structlog

from config.errors import (
    MisconfiguredError,
    PermanentError,
    SkillbusError,
    TransientError,
    UsageError,
)
from search.protocol import Vector
from skills.bundle.model import Bundle
from skills.events import QueryAsked
from tasks.journal.protocol import Job, JobStore
from tasks.metrics_recorder import MetricsRecorder
from tasks.outcomes.protocol import TaskVectors, quantise_vector
from tasks.outcomes.record_answers import build_answer
from tasks.policies import QUERY, Deadline
from tasks.query.context import RECORD_STAGE, StageTimings
from tasks.query.pipeline import answer_query
from tasks.query.session.state import Asker
from tasks.services import Services

log = structlog.get_logger()


def run_query(
    services: Services, deadline: Deadline, query_ids: Sequence[str]
) -> dict[str, object]:
    """Answer an accepted query; the outcome is recorded and is the result of the task.

    The outcome is {"state": "done", "bundle": …}, {"state": "failed", "reason": …, "usage": whether
    the query itself was wrong}, or {"state": "cancelled", "reason": …, "usage": True}. If the query
    has ended already, its recorded outcome is returned; a cancelled query stops before its next
    stage.
    """
    job = services.journal.get_job(query_ids[0])
    if job.state != "accepted":
        if job.state != "done":
            _drop_answer(services, job.id)  # of an interrupted delivery
        return _read_outcome(job)
    request = job.event.parse_data()
    if not isinstance(request, QueryAsked):
        raise PermanentError(f"{job.id} is not a query but {job.event.type}")
    if job.expires_in_seconds is not None and job.expires_in_seconds <= 0:
        reason = "expired before a worker took it"
        return _fail(services, job.id, reason, reason, usage=False)
    try:
        with services.coordinator.track_query():
            timings = StageTimings(partial(_start_stage, services.journal, job.id))
            asker = Asker(job.event.owner, job.accepted, job.event.reader)
            bundle, vector = answer_query(
                services, deadline, job.id, request, timings, asker, job.expires_in_seconds
            )
    except QueryEndedError:
        return _read_outcome(services.journal.get_job(job.id))
    except (PermanentError, MisconfiguredError) as error:
        usage = isinstance(error, (UsageError, MisconfiguredError))
        return _fail(services, job.id, str(error), error.public_message, usage=usage)
    answered = time.perf_counter()
    data = bundle.model_dump(mode="json")
    if bundle.session:
        # Recorded first: the reader of the answer may send the next query of the session at once.
        _record_answer(services, job, bundle, vector, anew=True)
    is_first = services.journal.finish_job(job.id, data)
    recording = {RECORD_STAGE: (time.perf_counter() - answered) * 1000}
    services.stage_durations.record({**bundle.timings_ms, **recording})
    if not is_first:  # it ended while it was answered here
        job = services.journal.get_job(job.id)
        if bundle.session:
            _record_again(services, job)
        return _read_outcome(job)
    if not bundle.session:
        _record_answer(services, job, bundle, vector)
    _report_metrics(services.metrics, bundle)
    return {"state": "done", "bundle": data}


def _record_again(services: Services, job: Job) -> None:
    """Record the journal's outcome of a query in place of the answer that was made here."""
    services.outcomes.drop_answers([job.id])
    if job.state == "done" and job.outcome is not None:
        _record_answer(services, job, Bundle.model_validate(job.outcome), None)


def _record_answer(
    services: Services, job: Job, bundle: Bundle, vector: Vector | None, *, anew: bool = False
) -> None:
    """Record the answer for outcomes and usage; if that fails, the reconciler does it.

    anew: replace the answer of an interrupted attempt.
    """
    try:
        if anew:
            services.outcomes.drop_answers([job.id])
        vectors = None
        if vector is not None and services.settings.learning.memory:
            model = services.encoder.get().model
            vectors = TaskVectors(model, {job.id: quantise_vector(vector)})
        services.outcomes.add_answers([build_answer(job, bundle)], vectors)
        services.metrics.record_answers("query", 1)
    except TransientError as error:
        log.warning("an answer is recorded later", query_id=job.id, reason=str(error))


def _drop_answer(services: Services, query_id: str) -> None:
    """Delete the answer of a delivery that did not end the query, so that its session does not
    count it as sent."""
    try:
        services.outcomes.drop_answers([query_id])
    except TransientError as error:
        log.warning("an unsent answer counts as sent", query_id=query_id, reason=str(error))


def _report_metrics(metrics: MetricsRecorder, bundle: Bundle) -> None:
    metrics.record_query("hit" if bundle.status == "SKILL_HIT" else "no_hit", bool(bundle.degraded))
    for stage, milliseconds in bundle.timings_ms.items():
        metrics.record_stage(QUERY.name, stage, milliseconds / 1000)


def fail_query(services: Services, query_ids: Sequence[str], error: BaseException) -> None:
    """Record that a query failed permanently."""
    for query_id in query_ids:
        public_message = error.public_message if isinstance(error, SkillbusError) else str(error)
        reason, public_reason = (
            f"{type(error).__name__}: {text}" for text in (str(error), public_message)
        )
        _fail(services, query_id, reason, public_reason, usage=False)


def _fail(
    services: Services, query_id: str, reason: str, public_reason: str, *, usage: bool
) -> dict[str, object]:
    """Record the failure for every reader, and return it for the caller on this machine.

    A query that another delivery has answered stays answered.
    """
    if reason != public_reason:
        log.warning("query failed", query_id=query_id, reason=reason)
    services.journal.fail_job(query_id, public_reason)
    state, _ = services.journal.get_job_states([query_id]).get(query_id, ("", ""))
    if state == "done":
        return _read_outcome(services.journal.get_job(query_id))
    _drop_answer(services, query_id)
    services.metrics.record_query("failed", degraded=False)
    return {"state": "failed", "reason": reason, "usage": usage}


def _read_outcome(job: Job) -> dict[str, object]:
    """Return the outcome of a query that has ended."""
    if job.state == "done":
        return {"state": "done", "bundle": job.outcome}
    cancelled = job.state == "cancelled"
    reason = "the query was cancelled" if cancelled else job.reason
    return {"state": job.state, "reason": reason, "usage": cancelled}


class QueryEndedError(SkillbusError):
    """A query was cancelled, or answered by another worker, while it was in work."""


def _start_stage(jobs: JobStore, query_id: str, stage: str) -> None:
    if not jobs.start_stage(query_id, stage):
        raise QueryEndedError(f"query {query_id} ended before {stage}")
