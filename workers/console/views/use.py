"""Use: queries, how often skills are chosen and help, unanswered tasks, and unused skills."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from config.errors import UsageError
from workers.console.charts import LineChart, plot_over_time
from workers.console.forms import validate
from workers.console.pages import PREFIX
from workers.console.view import CurrentView, PageParameters, View
from workers.http.routes.usage import (
    AnsweredQueriesQuery,
    UsagePage,
    UsageQuery,
    get_usage,
    list_answered,
    list_copies,
    list_unanswered,
    list_unused,
)
from workers.library.usage.answered import QueryOutcome

PATH = f"{PREFIX}/use"
TABS = {
    "overview": "Overview",
    "queries": "Queries",
    "unanswered": "Unanswered",
    "unused": "Never chosen",
    "copies": "Copy preferred",
}
RANGES = (7, 30, 90, 365)
OUTCOMES = {
    "": "any",
    QueryOutcome.HIT.value: "with a skill",
    QueryOutcome.NO_HIT.value: "without a skill",
    QueryOutcome.UNREPORTED.value: "nothing reported",
    **{one.value: f"reported: {one}" for one in QueryOutcome if one.is_reported},
}
"""Words for the values of the filter by outcome."""


class UsePageQuery(PageParameters):
    """Tab, range and filters of the page."""

    path = PATH

    tab: str = "overview"
    days: int = 30
    source: str = ""
    outcome: QueryOutcome | Literal[""] = ""
    cursor: str = ""

    def to_usage_query(self) -> UsageQuery:
        """Return the query of the HTTP API; raises UsageError for an invalid value."""
        values = {
            "days": self._check_days(),
            "source": self.source or None,
            "cursor": self.cursor,
            "limit": 100,
        }
        return validate(UsageQuery, values)

    def to_page(self) -> UsagePage:
        """Return the query for unanswered tasks; raises UsageError for an invalid range."""
        return UsagePage(days=self._check_days(), cursor=self.cursor, limit=50)

    def to_answered_query(self) -> AnsweredQueriesQuery:
        """Return the query for answered queries; raises UsageError for an invalid range."""
        return AnsweredQueriesQuery(
            days=self._check_days(), outcome=self.outcome or None, cursor=self.cursor, limit=50
        )

    def _check_days(self) -> int:
        if self.days not in RANGES:
            raise UsageError(f"days: choose one of {', '.join(map(str, RANGES))}")
        return self.days


router = APIRouter()


@router.get("/use")
def show_usage(view: CurrentView, query: Annotated[UsePageQuery, Query()]) -> Response:
    """Show a tab."""
    tab = query.tab if query.tab in TABS else "overview"
    found = _read(view, query)
    return view.render(
        f"use/{tab}.html",
        section="Usage",
        query=query,
        tab=tab,
        tabs=TABS,
        ranges=RANGES,
        outcomes=OUTCOMES,
        found=found,
        chart=_plot_queries(found) if tab == "overview" else None,
        next_url=query.next_url(found["next"]),
    )


@router.get("/use/export")
def export(view: CurrentView, query: Annotated[UsePageQuery, Query()]) -> Response:
    """Send the content of a tab as a file."""
    name = f"skillbus-{query.tab if query.tab in TABS else 'overview'}-{query.days}-days.json"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return JSONResponse(_read(view, query), headers=headers)


def _read(view: View, query: UsePageQuery) -> dict[str, Any]:
    """Return the content of the tab, in the form of the HTTP API."""
    usage, caller = view.services.usage, view.caller
    found: BaseModel
    if query.tab == "queries":
        found = list_answered(usage, caller, query.to_answered_query())
    elif query.tab == "unanswered":
        found = list_unanswered(usage, caller, query.to_page())
    elif query.tab == "unused":
        found = list_unused(usage, caller, query.to_usage_query())
    elif query.tab == "copies":
        found = list_copies(usage, caller, query.to_usage_query())
    else:
        found = get_usage(usage, caller, query.to_usage_query())
    return found.model_dump()


def plot_days(
    found: Mapping[str, Any], title: str, counters: Mapping[str, str], unit: str
) -> LineChart:
    """Return the chart of counters over the days of a report of usage.

    counters: name of the counter by name of the series. Days without usage count as 0.
    """
    first, last = date.fromisoformat(found["first"]), date.fromisoformat(found["last"])
    rows = {row["day"]: row for row in found["days"]}
    days = [first + timedelta(days=one) for one in range((last - first).days + 1)]
    counts = [rows.get(day.isoformat(), {}) for day in days]
    return plot_over_time(
        title,
        [datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() for day in days],
        {name: [row.get(counter, 0) for row in counts] for name, counter in counters.items()},
        unit=unit,
    )


def _plot_queries(found: Mapping[str, Any]) -> LineChart:
    """Return the chart of all queries and of unanswered queries per day."""
    counters = {"all": "queries", "unanswered": "unanswered"}
    return plot_days(found, "Queries over time", counters, "queries a day")
