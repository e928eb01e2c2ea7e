"""The library: a list of skills by words and filters."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict

from config.errors import UsageError
from graph.entry_filter import HasScripts
from graph.records import SkillState
from workers.backend.store_backend import StoreBackend
from workers.console.pages import PREFIX, Pages, build_url, find_cursor
from workers.http.authentication import CurrentCaller
from workers.http.routes.library.search import LibraryQuery, find_in_library, open_library
from workers.library.search.library_search import MAX_TEXT_CHARACTERS

PATH = f"{PREFIX}/library"

_ANY = "any"
_FACETS = (
    ("source", "Source"),
    ("state", "State"),
    ("level", "Safety, at least"),
    ("language", "Language"),
    ("licence", "Licence"),
    ("has_scripts", "Scripts"),
    ("embedded", "Sections"),
)
_LEVELS = {"1": "1 note", "2": "2 caution", "3": "3 dangerous"}
_NAMES = {
    "level": _LEVELS,
    "has_scripts": {"true": "with scripts", "false": "without", "unknown": "not known yet"},
    "embedded": {"true": "embedded", "false": "found by words"},
}
"""Words for the values of a facet, by facet."""


class LibraryPageQuery(BaseModel):
    """Words, filters and page. state: `any` includes removed skills; unset: published skills."""

    model_config = ConfigDict(frozen=True)

    q: str = ""
    source: str = ""
    state: str = ""
    language: str = ""
    licence: str = ""
    level: str = ""
    has_scripts: str = ""
    embedded: str = ""
    cursor: str = ""

    def to_library_query(self) -> LibraryQuery:
        """Return the query of the HTTP API; raises UsageError for an invalid value."""
        state = None if self.state == _ANY else self.state or SkillState.PUBLISHED
        if state is not None and state not in list(SkillState):
            raise UsageError(f"state: there is no {self.state!r}; choose one in the list")
        if self.level not in ("", *_LEVELS):
            raise UsageError("level: choose 1, 2 or 3")
        for name in ("has_scripts", "embedded"):
            if getattr(self, name) not in ("", *_NAMES[name]):
                raise UsageError(f"{name}: choose one of {', '.join(_NAMES[name])}")
        return LibraryQuery(
            q=self.q[:MAX_TEXT_CHARACTERS],
            source=self.source or None,
            state=None if state is None else SkillState(state),
            language=self.language or None,
            licence=self.licence or None,
            level=int(self.level) if self.level else None,
            has_scripts=HasScripts(self.has_scripts) if self.has_scripts else None,
            embedded=self.embedded == "true" if self.embedded else None,
            cursor=self.cursor,
        )

    def url(self, **changes: str) -> str:
        """Return the URL of the page with changed filters, on its first page."""
        values = self.model_dump(exclude={"cursor"}) | changes
        return build_url(PATH, values)


def library_views(backend: StoreBackend, pages: Pages) -> APIRouter:
    """Return the routes of the library."""
    router = APIRouter()
    library = open_library(backend)

    @router.get("/library")
    def show_library(
        request: Request, caller: CurrentCaller, query: Annotated[LibraryPageQuery, Query()]
    ) -> Response:
        found = find_in_library(backend, library, caller, query.to_library_query())
        next_cursor = find_cursor(found["next"])
        return pages.render(
            request,
            "library.html",
            section="Library",
            query=query,
            found=found,
            facets=[
                (name, title, found["facets"][name], getattr(query, name))
                for name, title in _FACETS
            ],
            value_names=_NAMES,
            next_url=query.url(cursor=next_cursor) if next_cursor else "",
            is_filtered=query != LibraryPageQuery(cursor=query.cursor),
        )

    return router
