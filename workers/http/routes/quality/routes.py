"""Routes of evaluations and labelled prompts."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from workers.http.authentication import CurrentCaller, require_scope
from workers.http.routes.quality.models import (
    EvaluationChanges,
    EvaluationDetails,
    EvaluationList,
    LabelledPromptList,
    QualityPage,
)
from workers.http.routes.quality.service import QualityService
from workers.http.tokens import TokenScope

EvaluationId = Annotated[
    str, Path(description="of `GET /v1/evaluations`", min_length=1, max_length=100)
]


def quality_routes(service: QualityService) -> APIRouter:
    """Return the routes."""
    router = APIRouter(tags=["quality"])

    @router.get("/v1/evaluations")
    def list_evaluations(caller: CurrentCaller) -> EvaluationList:
        """List kept runs of `skillbus eval`, the newest first; for readers of all sources."""
        return service.list_evaluations(caller)

    @router.get("/v1/evaluations/{evaluation_id}")
    def show_evaluation(
        evaluation_id: EvaluationId, caller: CurrentCaller, query: Annotated[QualityPage, Query()]
    ) -> EvaluationDetails:
        """Show a run: its measures and curves, and its prompts with the
        skills found, worst first."""
        return service.show_evaluation(caller, evaluation_id, query)

    @router.get("/v1/evaluations/{evaluation_id}/changes")
    def compare_evaluations(
        evaluation_id: EvaluationId,
        caller: CurrentCaller,
        before: Annotated[str, Query(description="the run to compare with", max_length=100)],
    ) -> EvaluationChanges:
        """Compare a run with another: measures, and the prompts that got better and worse."""
        return service.compare(caller, before, evaluation_id)

    @router.delete(
        "/v1/evaluations/{evaluation_id}",
        status_code=204,
        dependencies=[require_scope(TokenScope.ADMIN)],
    )
    def remove_evaluation(evaluation_id: EvaluationId) -> None:
        """Delete a kept run."""
        service.remove(evaluation_id)

    @router.get("/v1/labelled-prompts")
    def list_labelled_prompts(
        caller: CurrentCaller, query: Annotated[QualityPage, Query()]
    ) -> LabelledPromptList:
        """List the tasks for which a person reported the right skills: your own, as an admin
        all; the newest first."""
        return service.list_labelled(caller, query)

    return router
