"""The library: a list of skills by words and filters."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from graph.records import SkillState
from workers.console.forms import validate
from workers.console.pages import PREFIX
from workers.console.view import CurrentView, PageParameters, View
from workers.http.routes.library.search import LibraryQuery, search_library
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


class LibraryPageQuery(PageParameters):
    """Words, filters and page. state: `any` includes removed skills; unset: published skills."""

    path = PATH

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
        given = {name: value for name, value in self if value} | {"state": state}
        return validate(LibraryQuery, given | {"q": self.q[:MAX_TEXT_CHARACTERS]})


router = APIRouter()


@router.get("/library")
def show_library(view: CurrentView, query: Annotated[LibraryPageQuery, Query()]) -> Response:
    """Show a page of skills."""
    asked = query.to_library_query()
    found = search_library(view.backend, view.services.library, view.caller, asked)
    return view.render(
        "library.html",
        section="Library",
        query=query,
        found=found,
        facets=[
            (name, title, found["facets"][name], getattr(query, name)) for name, title in _FACETS
        ],
        value_names=_NAMES,
        next_url=query.next_url(found["next"]),
        is_filtered=query != LibraryPageQuery(cursor=query.cursor),
    )


def find_published(view: View, words: str, limit: int) -> list[dict[str, Any]]:
    """Return the published skills that have some of the words, best first; none without words."""
    if not words.strip():
        return []
    query = LibraryQuery(q=words[:MAX_TEXT_CHARACTERS], state=SkillState.PUBLISHED, limit=limit)
    found = search_library(view.backend, view.services.library, view.caller, query)
    skills: list[dict[str, Any]] = found["skills"]
    return skills
