"""The task `skillbus.record_outcomes`: stores the outcomes of accepted events."""

from __future__ import annotations

from collections.abc import Sequence

from config.errors import NotFoundError, PermanentError, TransientError, UsageError
from graph.visible_graph import restrict_graph
from skills.access import Reader
from skills.events import OutcomesReported
from skills.outcomes.model import AnsweredQuery, Outcome
from tasks.ingest.next_tasks import send_link
from tasks.journal.protocol import Job
from tasks.outcomes.protocol import describe_unknown_queries
from tasks.outcomes.record_answers import record_answers
from tasks.policies import Deadline
from tasks.services import Services


def record_outcomes(
    services: Services, deadline: Deadline, event_ids: Sequence[str]
) -> dict[str, object]:
    """Store the outcomes of accepted events; returns how many were new.

    An event about a query that its sender may not see, or that was not answered, fails with the
    reason. Raises TransientError for an event whose query is not answered yet.
    """
    new, waiting = 0, []
    for event_id in event_ids:
        deadline.check("record_outcomes")
        # An event that this version cannot parse fails below; a deleted one has ended.
        job = services.journal.get_jobs([event_id]).get(event_id)
        if job is None or job.state != "accepted":
            continue
        try:
            new += _record(services, job)
        except PermanentError as error:
            usage = isinstance(error, UsageError)
            services.journal.fail_job(job.id, error.public_message, usage=usage)
        except _UnansweredError as error:
            waiting.append(error)
    if new and services.writable and services.learned_links is not None:
        send_link(services)
    if waiting:
        raise waiting[0]
    return {"new_outcomes": new}


class _UnansweredError(TransientError):
    """The query of an outcome is still open."""


def _record(services: Services, job: Job) -> int:
    reported = job.event.parse_data()
    if not isinstance(reported, OutcomesReported):
        raise PermanentError(f"{job.id} does not report outcomes but is {job.event.type}")
    answer = _find_answer(services, reported.query_id, job.event.owner)
    outcomes = build_outcomes(job, reported, answer)
    _check_skills(services, job.event.reader, answer, outcomes)
    new = services.outcomes.add_outcomes(outcomes, job.accepted)
    # The outcomes of an event are stored together, so all of them are new, or none.
    for one in outcomes if new else ():
        services.metrics.record_outcome(one.kind.value, one.by.value)
    services.journal.finish_job(job.id, {"query_id": reported.query_id, "outcomes": len(outcomes)})
    return new


def _check_skills(
    services: Services, reader: Reader, answer: AnsweredQuery, outcomes: Sequence[Outcome]
) -> None:
    """Raise NotFoundError for a skill that neither the answer has nor the reader may see."""
    named = {one for outcome in outcomes for one in (outcome.skill_id, outcome.other) if one}
    unknown = sorted(named - {one.skill_id for one in answer.skills})
    if not unknown:
        return
    graph = restrict_graph(services.graph, reader, services.settings.access.default_groups)
    known = {entry.skill_id for entry in graph.get_entries(unknown)}
    missing = [skill_id for skill_id in unknown if skill_id not in known]
    if missing:
        raise NotFoundError(
            f"no skill {missing[0]!r} in the library; use an id of a bundle or of "
            "`skillbus skills list`"
        )


def build_outcomes(job: Job, reported: OutcomesReported, answer: AnsweredQuery) -> list[Outcome]:
    """Return the stored outcomes of an event: a function of its job and the answer.

    Their time is the time of the event, limited to the time from the query to the receipt.
    """
    places = {one.skill_id: one.place for one in answer.skills if one.sent}
    # A sender's clock may be wrong. It must not move reports to other days, each of which has a
    # limit of its own per owner.
    reported_at = max(answer.answered, min(job.event.time.timestamp(), job.accepted))
    return [
        Outcome(
            f"{job.id}-{number}",
            reported.query_id,
            one.skill_id,
            one.outcome,
            one.by,
            job.event.owner,
            reported_at,
            one.reason,
            one.other_skill_id,
            places.get(one.skill_id, 0),
            reported.task_result,
        )
        for number, one in enumerate(reported.outcomes)
    ]


def _find_answer(services: Services, query_id: str, owner: str) -> AnsweredQuery:
    """Return the answered query that an owner reports about.

    Raises NotFoundError if the owner may see no such query, _UnansweredError if it is still open.
    """
    found = services.outcomes.get_answers([query_id]).get(query_id)
    if found is None:
        _record_from_journal(services, query_id)
        found = services.outcomes.get_answers([query_id]).get(query_id)
    if found is None or not _may_see(owner, found.owner):
        raise NotFoundError(describe_unknown_queries([query_id]))
    return found


def _record_from_journal(services: Services, query_id: str) -> None:
    """Record the answer of a query whose outcome arrived before the record of the answer."""
    job = services.journal.get_jobs([query_id]).get(query_id)
    if job is None or job.kind != "query":
        return
    if job.state == "accepted":
        raise _UnansweredError(f"query {query_id} is not answered yet")
    record_answers(services, [query_id])


def _may_see(owner: str, asker: str) -> bool:
    """Return whether the sender of outcomes may see the query; "" is the user of this machine."""
    return owner in ("", asker)
