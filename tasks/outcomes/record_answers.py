"""Functions that record answered queries in the store of outcomes, from their jobs in the
journal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import structlog
from pydantic import ValidationError

from config.errors import UsageError
from skills.batches import batches
from skills.bundle.model import Bundle
from skills.events import QueryAsked
from skills.outcomes.model import (
    MAX_TASK_CHARACTERS,
    AnsweredQuery,
    AnsweredSkill,
    LostSkill,
)
from tasks.journal.protocol import Job
from tasks.services import Services

log = structlog.get_logger()

_CLOCK_SECONDS = 60.0
"""Overlap in seconds with the last check, since the clocks of servers differ."""

_BATCH_JOBS = 500


def build_answer(job: Job, bundle: Bundle) -> AnsweredQuery:
    """Return the stored record of an answered query: a function of its job and its bundle."""
    facts = QueryFacts(job.event.owner, job.accepted)
    request = job.event.parse_data()
    if isinstance(request, QueryAsked):
        # An answer that is only looked at is not sent to the agent of the session.
        session = request.session if request.record_use else ""
        facts = facts._replace(session=session, resend=request.resend, is_use=request.record_use)
    return describe_answer(bundle, job.id, facts)


class QueryFacts(NamedTuple):
    """Facts about a query that its bundle does not hold.

    accepted: seconds since the epoch. resend: its agent had lost what was sent before. is_use:
    whether usage counts it.
    """

    owner: str
    accepted: float
    session: str = ""
    resend: bool = False
    is_use: bool = True


def describe_answer(bundle: Bundle, query_id: str, facts: QueryFacts) -> AnsweredQuery:
    """Return the stored record of the answer to a query."""
    sent = [
        AnsweredSkill(
            skill.skill_id,
            skill.revision.seq,
            place,
            tokens=skill.tokens,
            lines=tuple((one.first_line, one.last_line) for one in skill.passages),
        )
        for place, skill in enumerate(bundle.skills, 1)
    ]
    unfit = [one for one in bundle.left_out if one.cause == "budget"]
    chosen = [
        AnsweredSkill(one.skill_id, 0, place, sent=False)
        for place, one in enumerate(unfit, len(sent) + 1)
    ]
    return AnsweredQuery(
        query_id,
        facts.owner,
        facts.session,
        bundle.task[:MAX_TASK_CHARACTERS],
        facts.accepted,
        bundle.status == "SKILL_HIT",
        bundle.probability,
        (*sent, *chosen),
        tuple(
            LostSkill(one.skill_id, one.other)
            for one in bundle.left_out
            if one.cause == "alternative" and one.other
        ),
        facts.resend,
        facts.is_use,
    )


def record_missing_answers(services: Services) -> int:
    """Record answered queries of the journal that a crash kept out of the store; returns the number
    of jobs that were checked."""
    journal, outcomes = services.journal, services.outcomes
    since = outcomes.get_recorded_until() - _CLOCK_SECONDS
    ended = journal.list_ended_jobs("query", since)
    if ended.until < since:  # the journal's clock was set back
        ended = journal.list_ended_jobs("query", 0.0)
    for batch in batches(ended.job_ids, _BATCH_JOBS):
        missing = set(batch) - outcomes.get_answers(batch).keys()
        services.metrics.record_answers("reconciler", record_answers(services, sorted(missing)))
    outcomes.set_recorded_until(ended.until)
    return len(ended.job_ids)


def record_answers(services: Services, job_ids: Sequence[str]) -> int:
    """Record the answers of queries from their jobs, without answers that this version cannot read;
    returns how many."""
    answers = list(_build_answers(services, job_ids))
    services.outcomes.add_answers(answers)
    return len(answers)


def _build_answers(services: Services, job_ids: Sequence[str]) -> Iterable[AnsweredQuery]:
    for job in services.journal.get_jobs(job_ids).values():
        if job.state == "done" and job.outcome is not None:
            try:
                yield build_answer(job, Bundle.model_validate(job.outcome))
            except (UsageError, ValidationError) as error:  # of another version of skillbus
                log.warning("answer cannot be recorded", query_id=job.id, reason=str(error))
