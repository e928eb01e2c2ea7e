"""Outcomes of a query's skills: reports by the owner of the query, and lists."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from config.errors import NotFoundError
from skills.events import MAX_OUTCOMES, OutcomesReported, SkillOutcome
from skills.outcomes.codec import outcome_to_dict
from skills.outcomes.model import TaskResult
from tasks.evaluations.protocol import forget_labelled
from tasks.outcomes.protocol import describe_unknown_queries
from workers.backend.store_backend import StoreBackend
from workers.http.authentication import LOCAL_USER, Caller, CurrentCaller
from workers.http.idempotency import IdempotencyKey
from workers.http.jobs import Accepted, accept_event
from workers.http.routes.queries import QueryId
from workers.library.usage.report import UsageFilter


class OutcomeReport(BaseModel):
    """Outcomes of the skills of a query, and of other skills that were used for its task."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    outcomes: tuple[SkillOutcome, ...] = Field(min_length=1, max_length=MAX_OUTCOMES)
    task_result: TaskResult | Literal[""] = Field("", description="how the task as a whole ended")


class WithdrawnOutcomes(BaseModel):
    """Result of a withdrawal. outcomes: number of deleted outcomes."""

    model_config = ConfigDict(frozen=True)

    outcomes: int


class OutcomeList(BaseModel):
    """The stored outcomes of a query, in order of their keys."""

    model_config = ConfigDict(frozen=True)

    outcomes: list[dict[str, Any]]


def outcome_routes(backend: StoreBackend) -> APIRouter:
    """Return the routes of outcomes."""
    router = APIRouter(tags=["outcomes"])

    @router.post("/v1/queries/{query_id}/outcomes", status_code=202)
    def report_outcomes(
        query_id: QueryId,
        report: OutcomeReport,
        response: Response,
        caller: CurrentCaller,
        key: IdempotencyKey = None,
    ) -> Accepted:
        """Accept outcomes of a query that this caller asked; `Location` is the URL of their state.

        They are stored by a task, and later answers learn from them.
        """
        data = prepare_report(backend, caller, query_id, report)
        return accept_event(backend, caller, data, key, response)

    @router.get("/v1/queries/{query_id}/outcomes")
    def list_outcomes(query_id: QueryId, caller: CurrentCaller) -> OutcomeList:
        """List the stored outcomes of a query that this caller may see."""
        return OutcomeList(outcomes=list_stored_outcomes(backend, caller, query_id))

    @router.delete("/v1/queries/{query_id}/outcomes")
    def withdraw_outcomes(query_id: QueryId, caller: CurrentCaller) -> WithdrawnOutcomes:
        """Delete all outcomes of a query that this caller asked, and what was learned from them;
        as an admin, those of any query."""
        return WithdrawnOutcomes(outcomes=forget_outcomes(backend, caller, query_id))

    return router


def forget_outcomes(backend: StoreBackend, caller: Caller, query_id: str) -> int:
    """Delete the outcomes of a query, also from kept evaluations, and return their number.

    Raises NotFoundError unless this caller may see the query.
    """
    list_stored_outcomes(backend, caller, query_id)
    deleted = backend.outcome_store().forget_outcomes(query_id)
    forget_labelled(backend.evaluation_store(), query_id)
    return deleted


def prepare_report(
    backend: StoreBackend, caller: Caller, query_id: str, report: OutcomeReport
) -> OutcomesReported:
    """Return the event that stores outcomes; raises NotFoundError unless this caller asked the
    query."""
    _check_asker(backend, caller, query_id)
    return OutcomesReported(
        query_id=query_id, outcomes=report.outcomes, task_result=report.task_result
    )


def list_stored_outcomes(
    backend: StoreBackend, caller: Caller, query_id: str
) -> list[dict[str, Any]]:
    """Return the outcomes of a query, without skills that this caller may not see; raises
    NotFoundError unless it may see the query."""
    answer = backend.outcome_store().get_answers([query_id]).get(query_id)
    if answer is None or not caller.can_see(answer.owner):
        raise NotFoundError(describe_unknown_queries([query_id]))
    found = backend.outcome_store().get_outcomes([query_id]).get(query_id, ())
    selection = UsageFilter(visible=backend.find_visible_sources(caller.reader))
    return [outcome_to_dict(one) for one in selection.hide(found)]


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
