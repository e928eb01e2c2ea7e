"""The search of the library by words and filters, with counts of the filters' values."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from graph.entry_filter import EntryFilter, HasScripts
from graph.records import SkillState
from workers.backend.store_backend import StoreBackend
from workers.http.authentication import CurrentCaller
from workers.http.cursors import PageQuery
from workers.http.dependencies import CurrentBackend, from_state
from workers.http.models import ResponseModel
from workers.http.routes.skills import HAS_SCRIPTS_FILTER, SkillEntry
from workers.library.search.library_search import (
    FACETS,
    MAX_FOUND,
    MAX_TEXT_CHARACTERS,
    LibrarySearch,
)
from workers.library.skill_data import entry_data

CurrentLibrary = Annotated[LibrarySearch, from_state("library")]

_PATH = "/v1/library"


class LibraryQuery(PageQuery):
    """Words and filters, all of which must match. Other parameters are rejected."""

    q: str = Field(
        "",
        max_length=MAX_TEXT_CHARACTERS,
        description="words that published skills have, best first; the last one may be unfinished; "
        f"at most {MAX_FOUND} skills are found; empty: all skills, by id",
    )
    source: str | None = Field(None, description="only skills of this source")
    state: SkillState | None = Field(None, description="only skills in this state")
    language: str | None = Field(None, description="only skills in this language")
    licence: str | None = Field(None, description="only skills with this licence")
    level: int | None = Field(
        None, ge=0, le=3, description="only skills of at least this level, as the scanner found it"
    )
    has_scripts: HasScripts | None = Field(None, description=HAS_SCRIPTS_FILTER)
    embedded: bool | None = Field(
        None, description="only skills whose sections have vectors, or only those without"
    )
    limit: int = Field(50, ge=1, le=200)

    def to_filter(self) -> EntryFilter:
        """Return the filter, without the words."""
        return EntryFilter(**{field: getattr(self, name) for name, field in FACETS.items()})


class Facet(ResponseModel):
    """A value of a filter, and how many skills have it that match all other filters."""

    value: str
    skills: int


class LibraryResult(ResponseModel):
    """Skills of the library. total: number of matching skills; is_cut: whether there may be more,
    as a search by words is limited. facets: by name of a parameter. next: path of the next page,
    null on the last one."""

    total: int
    is_cut: bool
    skills: list[SkillEntry]
    facets: dict[str, list[Facet]]
    next: str | None


router = APIRouter(tags=["skills"])


@router.get(_PATH, response_model=LibraryResult)
def search_library(
    backend: CurrentBackend,
    library: CurrentLibrary,
    caller: CurrentCaller,
    query: Annotated[LibraryQuery, Query()],
) -> dict[str, Any]:
    """Search skills by words and filters, with counts of the filters' values."""
    page = library.find(
        query.q,
        query.to_filter(),
        query.decode_cursor(_PATH),
        query.limit,
        visible=backend.find_visible_sources(caller.reader),
        include_withheld=caller.is_admin,
    )
    results = backend.skills.get_policy().judge(page.entries)
    return {
        "total": page.total,
        "is_cut": page.is_cut,
        "skills": [
            entry_data(one, results[one.skill_id], include_withheld=caller.is_admin)
            for one in page.entries
        ],
        "facets": {name: [one._asdict() for one in found] for name, found in page.facets.items()},
        "next": query.make_next_path(_PATH, page.after) if page.after else None,
    }


def open_library(backend: StoreBackend) -> LibrarySearch:
    """Return the search of a deployment's library."""
    return LibrarySearch(
        lambda: (backend.graph, backend.search_index()), lambda: backend.skills.get_policy()
    )
