"""Skills: lists, details and removal."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from graph.entry_filter import EntryFilter, HasScripts
from graph.protocol import Catalog
from graph.records import CatalogEntry, SkillState
from skills.events import SkillRemoved
from skills.record import get_source_id
from workers.backend.store_backend import StoreBackend
from workers.http.authentication import NEEDS_WRITE, Caller, CurrentCaller, check_source
from workers.http.cursors import PageQuery
from workers.http.dependencies import CurrentBackend
from workers.http.jobs import Accepted, IdempotencyKey, accept_event
from workers.http.models import ResponseModel
from workers.http.responses.etags import respond_if_changed
from workers.library.skill_data import entry_data
from workers.library.skill_history import read_history
from workers.library.skill_reader import require_entry

HAS_SCRIPTS_FILTER = (
    "only skills with scripts next to SKILL.md, or only those without; unknown: failed ones, and "
    "those of a former version of skillbus until the reconciler has read them"
)
_MEDIA_TYPE = "application/json"
_PATH = "/v1/skills"


class _Skill(BaseModel):
    """A catalog entry. seq, content_hash: of the published revision."""

    model_config = ConfigDict(frozen=True, extra="allow")

    skill_id: str
    name: str
    state: SkillState
    seq: int | None
    content_hash: str | None
    reason: str | None
    source_id: str
    path: str
    description: str
    safety_level: int
    tokens: int
    language: str
    licence: str
    has_vectors: bool = Field(
        description="whether its own vectors are stored; until then it is found by words"
    )
    has_scripts: bool | None = Field(
        description="whether it has scripts next to SKILL.md; null while this is not known"
    )
    embedded: bool = Field(description="whether the vectors of its sections are stored")
    paged: bool = Field(
        description="former name of `embedded`; will be removed",
        json_schema_extra={"deprecated": True},
    )
    withheld: str | None


class SkillEntry(_Skill):
    """A skill in a list. warnings: number of warnings of its ingest.

    withheld: why the policy excludes it from bundles; only admins then see the author's texts.
    """

    warnings: int


class HistoryEntry(ResponseModel):
    """An entry of a skill's history.

    what: `published`, `failed`, `removed`, `held` for review, `waiting`, and for admins `dead
    letter`. at: RFC 3339. event: id of the event or trace that caused it.
    """

    what: str
    seq: int | None
    at: str | None
    reason: str | None
    event: str | None


class SkillDetail(_Skill):
    """A skill with its links and history; if published, with its record and passages.

    Without record and passages if the policy withholds it and the caller is not an admin.
    warnings, safety: findings of its ingest, with lines. passages: with lines and text.
    passage_links: between passages, by their indexes. dismissed_links: with their
    reasons, for admins only.
    """

    links: list[dict[str, Any]]
    dismissed_links: list[dict[str, Any]] = []
    history: list[HistoryEntry]
    warnings: list[dict[str, Any]]
    safety: list[dict[str, Any]] = []
    files: list[dict[str, Any]] = []
    passages: list[dict[str, Any]] = []
    passage_links: list[dict[str, Any]] = []


class SkillList(ResponseModel):
    """Skills ordered by id. next: path of the next page, null on the last one."""

    skills: list[SkillEntry]
    next: str | None


class SkillListQuery(PageQuery):
    """Filters of a list of skills, all of which must match. Other parameters are rejected."""

    source: str | None = Field(None, description="only skills of this source")
    state: SkillState | None = Field(None, description="only skills in this state")
    name: str | None = Field(
        None, description="only published skills of this name; case and separators are ignored"
    )
    has_scripts: HasScripts | None = Field(None, description=HAS_SCRIPTS_FILTER)
    limit: int = Field(100, ge=1, le=1_000)

    def to_selection(self) -> EntryFilter:
        """Return the filter for the catalog."""
        return EntryFilter(self.source, self.state, self.name, has_scripts=self.has_scripts)


router = APIRouter(tags=["skills"])


@router.get(_PATH, response_model=SkillList)
def list_skills(
    backend: CurrentBackend,
    caller: CurrentCaller,
    response: Response,
    query: Annotated[SkillListQuery, Query()],
) -> dict[str, Any]:
    """List skills by id; `next` and the `Link` header are the path of the next page."""
    page, next_path = _list_entries(backend.graph_for(caller.reader), query)
    if next_path is not None:
        response.headers["Link"] = f'<{next_path}>; rel="next"'
    results = backend.skills.for_reader(caller.reader).get_policy().judge(page)
    rows = [
        entry_data(entry, results[entry.skill_id], include_withheld=caller.is_admin)
        for entry in page
    ]
    return {"skills": rows, "next": next_path}


@router.get(
    "/v1/skills/{skill_id:path}",
    response_model=SkillDetail,
    responses={304: {"description": "Unchanged: `If-None-Match` has its `ETag`"}},
)
def get_skill(
    backend: CurrentBackend,
    caller: CurrentCaller,
    skill_id: str,
    if_none_match: Annotated[
        str | None, Header(description="`ETag` of an earlier response")
    ] = None,
) -> Response:
    """Show a skill with its passages, links, history and the reason of a failure."""
    return respond_with_skill(backend, skill_id, caller, if_none_match)


@router.delete("/v1/skills/{skill_id:path}", status_code=202, dependencies=NEEDS_WRITE)
def remove_skill(
    backend: CurrentBackend,
    caller: CurrentCaller,
    skill_id: str,
    response: Response,
    key: IdempotencyKey = None,
) -> Accepted:
    """Remove a skill until its folder, which is not touched, changes again; the files of an
    uploaded skill are deleted."""
    check_source(caller, get_source_id(skill_id))
    require_entry(backend.graph_for(caller.reader), skill_id)
    return accept_event(backend, caller, SkillRemoved(skill_id=skill_id), key, response)


def respond_with_skill(
    backend: StoreBackend, skill_id: str, caller: Caller, if_none_match: str | None = None
) -> Response:
    """Respond with a skill as this caller may see it; raises NotFoundError if there is none."""
    data = describe_skill(backend, caller, skill_id)
    content = json.dumps(data, ensure_ascii=False).encode()
    digest = hashlib.sha256(content).hexdigest()[:32]
    return respond_if_changed(content, _MEDIA_TYPE, digest, "private, no-cache", if_none_match)


def describe_skill(backend: StoreBackend, caller: Caller, skill_id: str) -> dict[str, Any]:
    """Return a skill as this caller may see it; raises NotFoundError if there is none."""
    skills = backend.skills.for_reader(caller.reader)
    data = skills.describe_skill(skill_id, text=True, include_withheld=caller.is_admin)
    entry = skills.require(skill_id)
    data["history"] = read_history(backend, entry, include_dead_letters=caller.is_admin)
    return data


def _list_entries(graph: Catalog, query: SkillListQuery) -> tuple[list[CatalogEntry], str | None]:
    """Return the entries of a page and the path of the next page, None on the last."""
    after = query.decode_cursor(_PATH)
    page = graph.list_entries(query.to_selection(), after, query.limit + 1)
    if len(page) <= query.limit:
        return page, None
    page = page[: query.limit]
    return page, query.make_next_path(_PATH, page[-1].skill_id)
