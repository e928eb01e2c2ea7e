"""Quality: kept evaluations, comparisons of them, and the labelled prompts of the library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException

from config.errors import UsageError
from workers.audit.requests import note_object
from workers.console.charts import LineChart, plot_over_numbers
from workers.console.forms import SentForm, get_text
from workers.console.pages import PREFIX, build_url, find_cursor, redirect
from workers.console.view import CurrentView
from workers.http.routes.outcomes import withdraw_outcomes
from workers.http.routes.quality import routes as quality
from workers.http.routes.quality.models import EvaluationData, EvaluationDetails, QualityPage
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


router = APIRouter()


@router.get("/quality")
def show_runs(view: CurrentView) -> Response:
    """Show the kept runs."""
    refusal = ""
    runs: list[EvaluationData] = []
    try:
        runs = quality.list_evaluations(view.backend, view.caller).evaluations
    except HTTPException as error:  # readers of some sources still see their labelled prompts
        refusal = str(error.detail)
    before, after = _choose_pair(runs)
    return view.render(
        "quality/runs.html",
        section="Quality",
        tab="runs",
        runs=runs,
        refusal=refusal,
        before=before,
        after=after,
    )


@router.get("/quality/labels")
def show_labels(view: CurrentView, query: Annotated[CursorQuery, Query()]) -> Response:
    """Show labelled prompts."""
    labelled, asked = view.services.labelled, query.to_page_query()
    found = quality.list_labelled_prompts(view.backend, labelled, view.caller, asked)
    return view.render(
        "quality/labels.html",
        section="Quality",
        tab="labels",
        found=found,
        query=query,
        next_url=_find_next(f"{PATH}/labels", found.next),
    )


@router.get("/quality/compare")
def show_changes(view: CurrentView, before: str = "", after: str = "") -> Response:
    """Show the differences between two runs."""
    if not before or not after or before == after:
        raise UsageError("choose two different runs, one for Before and one for After")
    found = quality.compare_evaluations(view.backend, view.caller, after, before)
    return view.render("quality/compare.html", section="Quality", tab="runs", found=found)


@router.get("/quality/runs/{evaluation_id}")
def show_run(
    view: CurrentView, evaluation_id: str, query: Annotated[CursorQuery, Query()]
) -> Response:
    """Show a run."""
    asked = query.to_page_query()
    run = quality.show_evaluation(view.backend, view.caller, evaluation_id, asked)
    path = f"{PATH}/runs/{run.evaluation_id}"
    return view.render(
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
def withdraw(view: CurrentView, form: SentForm) -> Response:
    """Withdraw the outcomes of a query."""
    query_id = get_text(form, "query_id")
    note_object(view.request, query_id)
    withdraw_outcomes(view.backend, view.caller, query_id)
    return redirect(build_url(f"{PATH}/labels", {"withdrawn": 1}))


@router.post("/actions/evaluations/remove")
def remove_run(view: CurrentView, form: SentForm) -> Response:
    """Delete a run."""
    evaluation_id = get_text(form, "evaluation_id")
    view.admit_change(TokenScope.ADMIN, evaluation_id)
    view.backend.evaluation_store().remove(evaluation_id)
    return redirect(PATH)


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
