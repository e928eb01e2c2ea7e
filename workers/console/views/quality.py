"""Quality: kept evaluations, comparisons of them, and the labelled prompts of the library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException

from config.errors import UsageError
from workers.audit.requests import note_object
from workers.backend.store_backend import StoreBackend
from workers.console.charts import LineChart, plot_over_numbers
from workers.console.forms import SentForm, get_text
from workers.console.pages import PREFIX, Pages, build_url, find_cursor, redirect
from workers.http.authentication import CurrentCaller, check_scope
from workers.http.routes.outcomes import forget_outcomes
from workers.http.routes.quality.models import EvaluationData, EvaluationDetails, QualityPage
from workers.http.routes.quality.service import QualityService
from workers.http.tokens import TokenScope

PATH = f"{PREFIX}/quality"

_PROMPTS = 50


class CursorQuery(BaseModel):
    """A page of a list. withdrawn: whether a label has just been withdrawn."""

    model_config = ConfigDict(frozen=True)

    cursor: str = ""
    withdrawn: bool = False

    def to_page_query(self) -> QualityPage:
        """Return the query of the HTTP API."""
        return QualityPage(limit=_PROMPTS, cursor=self.cursor)


def quality_views(backend: StoreBackend, pages: Pages, service: QualityService) -> APIRouter:
    """Return the routes of evaluations and labelled prompts."""
    router = APIRouter()

    @router.get("/quality")
    def show_runs(request: Request, caller: CurrentCaller) -> Response:
        refusal = ""
        runs: list[EvaluationData] = []
        try:
            runs = service.list_evaluations(caller).evaluations
        except HTTPException as error:  # readers of some sources still see their labelled prompts
            refusal = str(error.detail)
        before, after = _choose_pair(runs)
        return pages.render(
            request,
            "quality/runs.html",
            section="Quality",
            tab="runs",
            runs=runs,
            refusal=refusal,
            before=before,
            after=after,
        )

    @router.get("/quality/labels")
    def show_labels(
        request: Request, caller: CurrentCaller, query: Annotated[CursorQuery, Query()]
    ) -> Response:
        found = service.list_labelled(caller, query.to_page_query())
        return pages.render(
            request,
            "quality/labels.html",
            section="Quality",
            tab="labels",
            found=found,
            query=query,
            next_url=_find_next(f"{PATH}/labels", found.next),
        )

    @router.get("/quality/compare")
    def show_changes(
        request: Request, caller: CurrentCaller, before: str = "", after: str = ""
    ) -> Response:
        if not before or not after or before == after:
            raise UsageError("choose two different runs, one as before and one as after")
        found = service.compare(caller, before, after)
        return pages.render(
            request, "quality/compare.html", section="Quality", tab="runs", found=found
        )

    @router.get("/quality/runs/{evaluation_id}")
    def show_run(
        evaluation_id: str,
        request: Request,
        caller: CurrentCaller,
        query: Annotated[CursorQuery, Query()],
    ) -> Response:
        run = service.show_evaluation(caller, evaluation_id, query.to_page_query())
        path = f"{PATH}/runs/{run.evaluation_id}"
        return pages.render(
            request,
            "quality/run.html",
            section="Quality",
            tab="runs",
            run=run,
            query=query,
            path=path,
            reliability=_plot_reliability(run),
            recall=_plot_recall(run),
            next_url=_find_next(path, run.next),
        )

    @router.post("/actions/outcomes/withdraw")
    def withdraw_outcomes(request: Request, caller: CurrentCaller, form: SentForm) -> Response:
        query_id = get_text(form, "query_id")
        note_object(request, query_id)
        forget_outcomes(backend, caller, query_id)
        return redirect(build_url(f"{PATH}/labels", {"withdrawn": 1}))

    @router.post("/actions/evaluations/remove")
    def remove_run(request: Request, caller: CurrentCaller, form: SentForm) -> Response:
        evaluation_id = get_text(form, "evaluation_id")
        note_object(request, evaluation_id)
        check_scope(caller, TokenScope.ADMIN)
        service.remove(evaluation_id)
        return redirect(PATH)

    return router


def _choose_pair(runs: Sequence[EvaluationData]) -> tuple[str, str]:
    """Return the ids of the newest two comparable runs, the earlier first; "" without such runs."""
    for place, after in enumerate(runs):
        for before in runs[place + 1 :]:
            if (before.kind, before.name) == (after.kind, after.name):
                return before.evaluation_id, after.evaluation_id
    return "", runs[0].evaluation_id if runs else ""


def _find_next(path: str, following: str | None) -> str:
    """Return the URL of the next page, "" on the last page."""
    cursor = find_cursor(following)
    return build_url(path, {"cursor": cursor}) if cursor else ""


def _plot_reliability(run: EvaluationDetails) -> LineChart | None:
    if run.reliability is None:
        return None
    points = run.reliability.points
    return plot_over_numbers(
        "How often the first skill is right, by its probability",
        [one.predicted for one in points],
        {
            "observed share": [one.observed for one in points],
            "ideal": [one.predicted for one in points],
            "95% interval, low": [one.low for one in points],
            "95% interval, high": [one.high for one in points],
        },
        x_name="Probability",
    )


def _plot_recall(run: EvaluationDetails) -> LineChart:
    return plot_over_numbers(
        "Share of the needed skills up to each rank",
        [one.rank for one in run.recall],
        {"recall": [one.recall for one in run.recall]},
        x_name="Rank",
    )
