"""The graph of links: the neighbourhood of a skill or of an answer, and the walk of an answer."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from config.errors import TransientError, UsageError
from graph.neighbourhood import MAX_SKILLS
from graph.records import LinkType, SkillState
from graph.visible_graph import restrict_graph
from skills.access import Reader
from workers.backend.store_backend import StoreBackend
from workers.http.authentication import Caller, CurrentCaller
from workers.http.dependencies import CurrentBackend
from workers.http.jobs import get_visible_job
from workers.http.models import RequestModel, ResponseModel
from workers.http.routes.queries import QueryId
from workers.http.routes.skills import respond_with_skill
from workers.library.graph.skill_graph import GraphReader
from workers.library.skill_reader import require_entry

MAX_DEPTH = 3


class NeighbourhoodQuery(RequestModel):
    """Depth, links and number of skills of a neighbourhood. Other parameters are rejected."""

    depth: int = Field(1, ge=1, le=MAX_DEPTH, description="links between a skill and the start")
    type: list[LinkType] = Field(
        [], description="types of links, all without; may be given more than once"
    )
    limit: int = Field(
        60, ge=1, le=MAX_SKILLS, description="maximum number of skills, the start included"
    )


class WalkQuery(RequestModel):
    """Number of skills of a walk. Other parameters are rejected."""

    limit: int = Field(
        60, ge=1, le=MAX_SKILLS, description="maximum number of skills, those with the most mass"
    )


class GraphSkill(ResponseModel):
    """A skill of a graph.

    distance: links between it and the nearest start, which has 0; of a walk, 0 for seeds and null
    for others. withheld: why the policy excludes it from bundles, for admins.
    """

    skill_id: str
    name: str
    description: str
    state: SkillState
    withheld: str | None
    distance: int | None


class GraphLink(ResponseModel):
    """A link between two skills. confidence: that it is right. owner: whose text it comes from."""

    source: str
    target: str
    type: LinkType
    weight: float
    confidence: float
    evidence: str
    owner: str


class SkillGraphPart(ResponseModel):
    """Skills, nearest first, and the links among them, heaviest first.

    cut: which skills or links are left out and why, in words; empty if none are.
    """

    skills: list[GraphSkill]
    links: list[GraphLink]
    cut: list[str]


class WalkSkill(GraphSkill):
    """A skill that mass reached.

    seed: the share of the mass that starts here. mass: the share that is here at first and after
    each move. arrived: the share that came over links and stays, which counts in the ranking.
    added: what diffusion added to its score, null if it is not among the explained candidates.
    """

    seed: float
    mass: list[float]
    arrived: float
    added: float | None


class QueryWalk(ResponseModel):
    """The diffusion of a query: its mass at first and after each of the `moves` along links.

    restart: share of the mass arriving at a skill that stays there; the rest moves on. elsewhere:
    share at skills that are not shown, at first and after each move. changed: skills that changed
    since the query, or whose links did; the walk uses the current links. links, cut: as in a
    neighbourhood. reached: number of skills that mass reached, shown or not.
    """

    moves: int
    restart: float
    skills: list[WalkSkill]
    links: list[GraphLink]
    cut: list[str]
    elsewhere: list[float]
    changed: list[str]
    reached: int


# These routes come before that of a skill, whose id may hold slashes.
router = APIRouter(tags=["graph"])


@router.get("/v1/skills/{skill_id:path}/neighbourhood", response_model=SkillGraphPart)
def get_skill_neighbourhood(
    backend: CurrentBackend,
    caller: CurrentCaller,
    skill_id: str,
    query: Annotated[NeighbourhoodQuery, Query()],
) -> Any:
    """Show the skills that links lead to from a skill, and the links among them."""
    whole = f"{skill_id}/neighbourhood"
    if backend.graph_for(caller.reader).get_entries([whole]):
        return respond_with_skill(backend, whole, caller)  # a skill whose own path ends like this
    return describe_skill_neighbourhood(backend, caller, skill_id, query)


def describe_skill_neighbourhood(
    backend: StoreBackend, caller: Caller, skill_id: str, query: NeighbourhoodQuery
) -> dict[str, Any]:
    """Return the neighbourhood of a skill; raises NotFoundError if the skill does not exist.

    A skill that is withheld from the caller has no links.
    """
    require_entry(backend.graph_for(caller.reader), skill_id)
    reader = _open_reader(backend, caller, caller.reader)
    found = reader.describe_neighbourhood([skill_id], _list_types(query), query.depth, query.limit)
    return found if found["skills"] else found | {"skills": [reader.describe_skill(skill_id)]}


@router.get("/v1/queries/{query_id}/neighbourhood", response_model=SkillGraphPart)
def get_query_neighbourhood(
    backend: CurrentBackend,
    caller: CurrentCaller,
    query_id: QueryId,
    query: Annotated[NeighbourhoodQuery, Query()],
) -> dict[str, Any]:
    """Show the skills of an answer, those that links lead to from them, and the links among
    them."""
    job = get_visible_job(backend, caller, query_id, "query")
    if job.state == "accepted":
        raise TransientError(f"query {query_id} is not answered yet; try again in a moment")
    if job.outcome is None:
        raise UsageError(f"query {query_id} has no answer: it is {job.state}")
    starts = [one["skill_id"] for one in job.outcome["skills"]]
    reader = _open_reader(backend, caller, job.event.reader)
    return reader.describe_neighbourhood(starts, _list_types(query), query.depth, query.limit)


@router.get("/v1/queries/{query_id}/walk", response_model=QueryWalk)
def get_query_walk(
    backend: CurrentBackend,
    caller: CurrentCaller,
    query_id: QueryId,
    query: Annotated[WalkQuery, Query()],
) -> dict[str, Any]:
    """Show how mass moves along links from the best candidates of a query that was asked with
    `explain`: the personalised PageRank of its stage `diffusion`, move by move."""
    job = get_visible_job(backend, caller, query_id, "query")
    reader = _open_reader(backend, caller, job.event.reader)
    return reader.describe_walk(job, backend.settings.diffusion, query.limit)


def _open_reader(backend: StoreBackend, caller: Caller, asker: Reader) -> GraphReader:
    """Return the graph that both caller and asker may see; the query could use nothing else."""
    default_groups = backend.settings.access.default_groups
    graph = restrict_graph(backend.graph_for(caller.reader), asker, default_groups)
    return GraphReader(
        graph,
        backend.skills.for_reader(caller.reader).get_policy(),
        include_withheld=caller.is_admin,
    )


def _list_types(query: NeighbourhoodQuery) -> tuple[LinkType, ...]:
    return tuple(query.type) or tuple(LinkType)
