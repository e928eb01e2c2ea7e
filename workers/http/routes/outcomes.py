"""Outcomes of a query's skills: reports by the owner of the query, and lists."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Response
from pydantic import Field

from config.errors import NotFoundError
from skills.events import MAX_OUTCOMES, OutcomesReported, SkillOutcome
from skills.outcomes.codec import outcome_to_dict
from skills.outcomes.model import TaskResult
from tasks.evaluations.protocol import forget_labelled
from tasks.outcomes.protocol import describe_unknown_queries
from workers.backend.store_backend import StoreBackend
from workers.http.authentication import LOCAL_USER, Caller, CurrentCaller
from workers.http.dependencies import CurrentBackend
from workers.http.jobs import Accepted, IdempotencyKey, accept_event
from workers.http.models import RequestModel, ResponseModel
from workers.http.routes.queries import QueryId
from workers.library.usage.report import UsageFilter


class OutcomeReport(RequestModel):
    """Outcomes of the skills of a query, and of other skills that were used for its task."""

    outcomes: tuple[SkillOutcome, ...] = Field(min_length=1, max_length=MAX_OUTCOMES)
    task_result: TaskResult | Literal[""] = Field("", description="how the task as a whole ended")


class WithdrawnOutcomes(ResponseModel):
    """Result of a withdrawal. outcomes: number of deleted outcomes."""

    outcomes: int


class OutcomeList(ResponseModel):
    """The stored outcomes of a query, in order of their keys."""

    outcomes: list[dict[str, Any]]


router = APIRouter(tags=["outcomes"])


@router.post("/v1/queries/{query_id}/outcomes", status_code=202)
def report_outcomes(
    backend: CurrentBackend,
    caller: CurrentCaller,
    query_id: QueryId,
    report: OutcomeReport,
    response: Response,
    key: IdempotencyKey = None,
) -> Accepted:
    """Accept outcomes of a query that this caller asked; `Location` is the URL of their state.

    They are stored by a task, and later answers learn from them.
    """
    _check_asker(backend, caller, query_id)
    data = OutcomesReported(
        query_id=query_id, outcomes=report.outcomes, task_result=report.task_result
    )
    return accept_event(backend, caller, data, key, response)


@router.get("/v1/queries/{query_id}/outcomes")
def list_outcomes(backend: CurrentBackend, caller: CurrentCaller, query_id: QueryId) -> OutcomeList:
    """List the stored outcomes of a query that this caller may see."""
    answer = backend.outcome_store().get_answers([query_id]).get(query_id)
    if answer is None or not caller.can_see(answer.owner):
        raise NotFoundError(describe_unknown_queries([query_id]))
    found = backend.outcome_store().get_outcomes([query_id]).get(query_id, ())
    visible = UsageFilter(visible=backend.find_visible_sources(caller.reader))
    return OutcomeList(outcomes=[outcome_to_dict(one) for one in visible.hide(found)])


@router.delete("/v1/queries/{query_id}/outcomes")
def withdraw_outcomes(
    backend: CurrentBackend, caller: CurrentCaller, query_id: QueryId
) -> WithdrawnOutcomes:
    """Delete all outcomes of a query that this caller asked, and what was learned from them;
    as an admin, those of any query."""
    list_outcomes(backend, caller, query_id)  # raises NotFoundError unless it may see the query
    deleted = backend.outcome_store().forget_outcomes(query_id)
    forget_labelled(backend.evaluation_store(), query_id)
    return WithdrawnOutcomes(outcomes=deleted)


def _check_asker(backend: StoreBackend, caller: Caller, query_id: str) -> None:
    """Raise NotFoundError unless this caller asked the query, or is the user of this machine.

    An open query is accepted: its outcomes are stored once it is answered.
    """
    answer = backend.outcome_store().get_answers([query_id]).get(query_id)
    if answer is not None:
        owner = answer.owner
    else:
        try:
            job = backend.journal.get_job(query_id)
        except NotFoundError:
            raise NotFoundError(describe_unknown_queries([query_id])) from None
        if job.kind != "query" or job.state not in ("accepted", "done"):
            raise NotFoundError(describe_unknown_queries([query_id]))
        owner = job.event.owner
    if caller is not LOCAL_USER and caller.name != owner:
        raise NotFoundError(describe_unknown_queries([query_id]))
