"""Graph: the neighbourhood of a skill or an answer, and the moves of an answer's walk."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import Field

from config.errors import UsageError
from graph.neighbourhood import MAX_SKILLS
from graph.records import LinkType
from workers.backend.store_backend import StoreBackend
from workers.console.graph.picture import draw_graph, name_skills
from workers.console.links import merge_links
from workers.console.pages import PREFIX, build_url
from workers.console.view import CurrentView, PageParameters
from workers.console.views.library import find_published
from workers.http.authentication import Caller
from workers.http.routes.library.graph import (
    MAX_DEPTH,
    NeighbourhoodQuery,
    WalkQuery,
    describe_skill_neighbourhood,
    get_query_neighbourhood,
    get_query_walk,
)

PATH = f"{PREFIX}/graph"
LIMITS = (30, 60, 120, MAX_SKILLS)
DEFAULT_LIMIT, WALK_LIMIT = 60, 40

_MAX_FOUND = 20


class GraphPageQuery(PageParameters):
    """Parameters of the page.

    It shows the neighbourhood of `skill`; or of the answer to `query`, or the answer's walk after
    `move` moves; or, without both, the skills with the words `find`.
    """

    path = PATH

    find: str = ""
    skill: str = ""
    query: str = ""
    show: str = ""
    move: Annotated[int, Query(ge=0, le=10_000)] = 0
    depth: Annotated[int, Query(ge=1, le=MAX_DEPTH)] = 1
    type: list[LinkType] = Field([])
    limit: Annotated[int | None, Query(ge=1, le=MAX_SKILLS)] = None

    @property
    def is_walk(self) -> bool:
        """Whether the walk of an answer is shown."""
        return self.show == "walk"

    @property
    def most(self) -> int:
        """Maximum number of skills on the page."""
        return self.limit or (WALK_LIMIT if self.is_walk else DEFAULT_LIMIT)

    def to_neighbourhood_query(self) -> NeighbourhoodQuery:
        """Return the query of the HTTP API."""
        return NeighbourhoodQuery(depth=self.depth, type=self.type, limit=self.most)


router = APIRouter()


@router.get("/graph")
def show_graph(view: CurrentView, query: Annotated[GraphPageQuery, Query()]) -> Response:
    """Show a part of the graph, or the search for a skill to start at."""
    if not (query.skill or query.query):
        skills = find_published(view, query.find, _MAX_FOUND)
        return view.render("graph/start.html", section="Graph", query=query, skills=skills)
    found = _describe(view.backend, view.caller, query)
    links = _list_links(found)
    move = min(query.move, found["moves"]) if query.is_walk else 0
    return view.render(
        "graph/walk.html" if query.is_walk else "graph/neighbourhood.html",
        section="Graph",
        query=query,
        found=found,
        names=name_skills(found["skills"]),
        links=links,
        picture=draw_graph(found["skills"], links),
        types=[kind.value for kind in LinkType],
        limits=LIMITS,
        max_skills=MAX_SKILLS,
        default_limit=WALK_LIMIT,
        depths=range(1, MAX_DEPTH + 1),
        move=move,
        graph_url=_graph_url,
    )


@lru_cache(maxsize=4_096)
def _graph_url(skill_id: str) -> str:
    return build_url(PATH, {"skill": skill_id})


def _describe(backend: StoreBackend, caller: Caller, query: GraphPageQuery) -> dict[str, Any]:
    """Return the content of the page, in the form of the HTTP API."""
    if query.skill and query.query:
        raise UsageError("give `skill` or `query`, not both")
    if query.skill:
        asked = query.to_neighbourhood_query()
        return describe_skill_neighbourhood(backend, caller, query.skill, asked)
    if query.is_walk:
        return get_query_walk(backend, caller, query.query, WalkQuery(limit=query.most))
    return get_query_neighbourhood(backend, caller, query.query, query.to_neighbourhood_query())


def _list_links(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the links that were found, those of the start first, each group heaviest first."""
    links = merge_links(found["links"])
    starts = {one["skill_id"] for one in found["skills"] if one["distance"] == 0}
    return sorted(links, key=lambda one: starts.isdisjoint((one["source"], one["target"])))
