"""Use: what is asked, chosen and helps, what is asked in vain, and what is of no use."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlsplit

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict

from config.errors import UsageError
from workers.console.pages import PREFIX, Pages, build_url
from workers.http.authentication import Caller, CurrentCaller
from workers.http.routes.usage import UnansweredQuery, UsageQuery, UsageService
from workers.library.usage.reader import UsageReader

PATH = f"{PREFIX}/use"
TABS = {
    "overview": "Overview",
    "unanswered": "Asked in vain",
    "unused": "Never chosen",
    "copies": "Lost to a copy",
}
RANGES = (7, 30, 90, 365)

_BARS = 31
"""Bars of the chart at most: longer ranges have several days in one."""


class UsePageQuery(BaseModel):
    """Tab, range and filters of the page."""

    model_config = ConfigDict(frozen=True)

    tab: str = "overview"
    days: int = 30
    source: str = ""
    cursor: str = ""

    def url(self, **changes: object) -> str:
        """Return the URL of the page with changes, on its first page."""
        return build_url(PATH, self.model_dump(exclude={"cursor"}) | changes)

    def to_usage_query(self) -> UsageQuery:
        """Return the query of the HTTP API; raises UsageError for another range."""
        return UsageQuery(
            days=self._check_days(), source=self.source or None, cursor=self.cursor, limit=100
        )

    def to_unanswered_query(self) -> UnansweredQuery:
        """Return the query for what is asked in vain; raises UsageError for another range."""
        return UnansweredQuery(days=self._check_days(), cursor=self.cursor, limit=50)

    def _check_days(self) -> int:
        if self.days not in RANGES:
            raise UsageError(f"days: choose one of {', '.join(map(str, RANGES))}")
        return self.days


def use_views(pages: Pages, usage_service: UsageService) -> APIRouter:
    """Return the routes of usage."""
    router = APIRouter()

    @router.get("/use")
    def show_usage(
        request: Request, caller: CurrentCaller, query: Annotated[UsePageQuery, Query()]
    ) -> Response:
        tab = query.tab if query.tab in TABS else "overview"
        found = _read(usage_service, caller, query)
        cursor = dict(parse_qsl(urlsplit(found["next"] or "").query)).get("cursor", "")
        return pages.render(
            request,
            f"use/{tab}.html",
            section="Use",
            query=query,
            tab=tab,
            tabs=TABS,
            ranges=RANGES,
            found=found,
            bars=_build_bars(found) if tab == "overview" else [],
            next_url=query.url(cursor=cursor) if cursor else "",
        )

    @router.get("/use/export")
    def export(caller: CurrentCaller, query: Annotated[UsePageQuery, Query()]) -> Response:
        name = f"skillbus-{query.tab if query.tab in TABS else 'overview'}-{query.days}-days.json"
        return JSONResponse(
            _read(usage_service, caller, query),
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )

    return router


def _read(usage_service: UsageService, caller: Caller, query: UsePageQuery) -> dict[str, Any]:
    """What the tab shows, as the HTTP API has it."""
    found: BaseModel
    if query.tab == "unanswered":
        found = usage_service.group_unanswered(caller, query.to_unanswered_query())
    elif query.tab == "unused":
        read, path = UsageReader.list_unused, "/v1/usage/unused"
        found = usage_service.list_found(caller, query.to_usage_query(), path, read)
    elif query.tab == "copies":
        read, path = UsageReader.list_copies, "/v1/usage/copies"
        found = usage_service.list_found(caller, query.to_usage_query(), path, read)
    else:
        found = usage_service.summarise(caller, query.to_usage_query())
    return found.model_dump()


def _build_bars(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The bars of the chart: from left to right, the queries of one or more days.

    height, unanswered: shares of the highest bar.
    """
    first, last = date.fromisoformat(found["first"]), date.fromisoformat(found["last"])
    span = -(-((last - first).days + 1) // _BARS)
    counts: dict[int, list[int]] = {}
    for row in found["days"]:
        place = (date.fromisoformat(row["day"]) - first).days // span
        bar = counts.setdefault(max(place, 0), [0, 0])
        bar[0] += row.get("queries", 0)
        bar[1] += row.get("unanswered", 0)
    highest = max((queries for queries, _ in counts.values()), default=0) or 1
    bars = []
    for place in range(-(-((last - first).days + 1) // span)):
        queries, unanswered = counts.get(place, (0, 0))
        begin = first + timedelta(days=place * span)
        end = min(begin + timedelta(days=span - 1), last)
        bars.append(
            {
                "title": f"{begin}" + (f" to {end}" if end > begin else ""),
                "queries": queries,
                "unanswered": unanswered,
                "height": round(100 * queries / highest, 1),
                "unanswered_height": round(100 * unanswered / highest, 1),
            }
        )
    return bars
