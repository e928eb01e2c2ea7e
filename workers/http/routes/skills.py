"""Skills: listed, shown with all that is known of them, and withdrawn."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Header, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from graph.protocol import Catalog
from graph.records import CatalogEntry, EntryFilter, SkillState
from skills.events import SkillRemoved
from tasks.query.policy_filter import make_policy
from workers.backend.store_backend import StoreBackend
from workers.http.access import CurrentCaller, require_scope
from workers.http.cursors import decode_cursor, encode_cursor
from workers.http.idempotency import IdempotencyKey
from workers.http.jobs import Accepted, accept_event
from workers.http.tokens import TokenScope
from workers.library.skill_data import entry_data
from workers.library.skill_history import read_history
from workers.library.skill_reader import require_entry

_MEDIA_TYPE = "application/json"


class _Skill(BaseModel):
    """A skill as the catalog has it; seq and content_hash of the published revision."""

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
    embedded: bool
    paged: bool
    withheld: str | None


class SkillEntry(_Skill):
    """A skill in a list. warnings: how many there were when it was read.

    withheld: why the policy keeps it out of bundles. Whoever is no admin is then not told what its
    author wrote.
    """

    warnings: int


class HistoryEntry(BaseModel):
    """Something that is known of a skill's past.

    what: `published`, `failed`, `removed`, `waiting`, and for admins `dead letter`. at: RFC 3339.
    event: id of the event, or trace, that led to it.
    """

    model_config = ConfigDict(frozen=True)

    what: str
    seq: int | None
    at: str | None
    reason: str | None
    event: str | None


class SkillDetail(_Skill):
    """A skill with its links and its past; a published one with its record and passages, unless
    it is withheld from whoever asks, as from all who are no admins.

    warnings, safety: what was noted when it was read, with lines. passages: their lines and text.
    passage_links: among the passages, by their places.
    """

    links: list[dict[str, Any]]
    history: list[HistoryEntry]
    warnings: list[dict[str, Any]]
    safety: list[dict[str, Any]] = []
    files: list[dict[str, Any]] = []
    passages: list[dict[str, Any]] = []
    passage_links: list[dict[str, Any]] = []


class SkillList(BaseModel):
    """Skills by id; next: the path of the page that follows, null on the last one."""

    model_config = ConfigDict(frozen=True)

    skills: list[SkillEntry]
    next: str | None


class SkillListQuery(BaseModel):
    """Which skills are listed: those that all filters hold for. A name that is no filter is
    refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str | None = Field(None, description="only of this source")
    state: SkillState | None = Field(None, description="only in this state")
    name: str | None = Field(
        None, description="only published ones of this name, but for case and separators"
    )
    limit: int = Field(100, ge=1, le=1_000)
    cursor: str = Field("", description="where the page before ended, as its `next` has it")

    def to_selection(self) -> EntryFilter:
        """What the catalog is asked for."""
        return EntryFilter(self.source, self.state, self.name)

    def filter_params(self) -> dict[str, str]:
        """The filters, by name."""
        return self.model_dump(mode="json", exclude_none=True, include={"source", "state", "name"})


def skill_routes(backend: StoreBackend) -> APIRouter:
    """The routes of skills over an open channel; uploads have their own."""
    router = APIRouter(tags=["skills"])

    @router.get("/v1/skills", response_model=SkillList)
    def list_skills(
        response: Response, caller: CurrentCaller, query: Annotated[SkillListQuery, Query()]
    ) -> dict[str, Any]:
        """A page of the catalog, by skill id; `next` and the `Link` header name the one after."""
        page, next_path = _list_entries(backend.graph, query)
        if next_path is not None:
            response.headers["Link"] = f'<{next_path}>; rel="next"'
        is_admin = caller.scope >= TokenScope.ADMIN
        policy = make_policy(backend.settings.policy, backend.graph.list_sources())
        rows = [entry_data(entry, policy, include_withheld=is_admin) for entry in page]
        return {"skills": rows, "next": next_path}

    @router.get(
        "/v1/skills/{skill_id:path}",
        response_model=SkillDetail,
        responses={304: {"description": "As it was: `If-None-Match` names what it is"}},
    )
    def get_skill(
        skill_id: str,
        caller: CurrentCaller,
        if_none_match: Annotated[str | None, Header(description="an `ETag` of before")] = None,
    ) -> Response:
        """A skill with passages, links, past, and why it failed if it did."""
        is_admin = caller.scope >= TokenScope.ADMIN
        data = backend.skills.describe_skill(skill_id, text=True, include_withheld=is_admin)
        entry = require_entry(backend.graph, skill_id)
        data["history"] = read_history(backend, entry, include_dead_letters=is_admin)
        return _respond_with_etag(data, if_none_match)

    @router.delete(
        "/v1/skills/{skill_id:path}",
        status_code=202,
        dependencies=[require_scope(TokenScope.WRITE)],
    )
    def remove_skill(
        skill_id: str, response: Response, caller: CurrentCaller, key: IdempotencyKey = None
    ) -> Accepted:
        """Withdraw a skill until its folder changes again, which is left as it is; one that came
        by value is deleted, and comes again by another upload."""
        require_entry(backend.graph, skill_id)
        return accept_event(backend, caller, SkillRemoved(skill_id=skill_id), key, response)

    return router


def _list_entries(graph: Catalog, query: SkillListQuery) -> tuple[list[CatalogEntry], str | None]:
    """The entries of a page, and the path of the one after, None on the last."""
    filter_params = urlencode(query.filter_params())
    after = decode_cursor(query.cursor, filter_params)
    page = graph.list_entries(query.to_selection(), after, query.limit + 1)
    if len(page) <= query.limit:
        return page, None
    page = page[: query.limit]
    place = {"limit": query.limit, "cursor": encode_cursor(page[-1].skill_id, filter_params)}
    return page, f"/v1/skills?{urlencode(query.filter_params() | place)}"


def _respond_with_etag(data: dict[str, Any], if_none_match: str | None) -> Response:
    """Data with an `ETag` that tells its content, or 304 where that is the one that is known."""
    body = json.dumps(data, ensure_ascii=False).encode()
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
    if _matches_etag(if_none_match, etag):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=_MEDIA_TYPE)


def _matches_etag(if_none_match: str | None, etag: str) -> bool:
    """Whether `If-None-Match` names a tag; compared weakly, since gzip changes the bytes."""
    named = [one.strip().removeprefix("W/") for one in (if_none_match or "").split(",")]
    return etag in named or "*" in named
