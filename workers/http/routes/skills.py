"""Skills: listed, shown with all that is known of them, and withdrawn."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Header, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from graph.entry_filter import Selection
from graph.protocol import Entry, SkillGraph, State
from skills.events import SkillRemoved
from skills.policy import Policy
from tasks.query.policy_filter import policy_of
from workers.backend.channel import Channel
from workers.http.access import Asking, needs
from workers.http.cursors import cursor_of, read_cursor
from workers.http.idempotency import IdempotencyKey
from workers.http.jobs import Accepted, accept_event
from workers.http.tokens import Scope
from workers.library.skill_data import entry_data, find_entry, skill_data
from workers.library.skill_history import history

_MEDIA_TYPE = "application/json"


class _Skill(BaseModel):
    """A skill as the catalog has it; seq and content_hash of the published revision."""

    model_config = ConfigDict(frozen=True, extra="allow")

    skill_id: str
    name: str
    state: State
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
    paged: bool
    withheld: str | None


class SkillEntry(_Skill):
    """A skill in a list. warnings: how many there were when it was read.

    withheld: why the policy keeps it out of bundles. Whoever is no admin is then not told what its
    author wrote.
    """

    warnings: int


class Moment(BaseModel):
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


class SkillShown(_Skill):
    """A skill with its links and its past; a published one with its record and passages, unless
    it is withheld from whoever asks, as from all who are no admins.

    warnings, safety: what was noted when it was read, with lines. passages: their lines and text.
    passage_links: among the passages, by their places.
    """

    links: list[dict[str, Any]]
    history: list[Moment]
    warnings: list[dict[str, Any]]
    safety: list[dict[str, Any]] = []
    files: list[dict[str, Any]] = []
    passages: list[dict[str, Any]] = []
    passage_links: list[dict[str, Any]] = []


class SkillPage(BaseModel):
    """Skills by id; next: the path of the page that follows, null on the last one."""

    model_config = ConfigDict(frozen=True)

    skills: list[SkillEntry]
    next: str | None


class Wanted(BaseModel):
    """Which skills are listed: those that all filters hold for. A name that is no filter is
    refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str | None = Field(None, description="only of this source")
    state: State | None = Field(None, description="only in this state")
    name: str | None = Field(
        None, description="only published ones of this name, but for case and separators"
    )
    limit: int = Field(100, ge=1, le=1_000)
    cursor: str = Field("", description="where the page before ended, as its `next` has it")

    def selection(self) -> Selection:
        """What the catalog is asked for."""
        return Selection(self.source, self.state, self.name)

    def asked(self) -> dict[str, str]:
        """The filters, by name."""
        return self.model_dump(mode="json", exclude_none=True, include={"source", "state", "name"})


def skill_routes(channel: Channel) -> APIRouter:
    """The routes of skills over an open channel; uploads have their own."""
    router = APIRouter(tags=["skills"])

    def policy() -> Policy:
        return policy_of(channel.settings.policy, channel.graph.sources())

    @router.get("/v1/skills", response_model=SkillPage)
    def list_skills(
        response: Response, caller: Asking, wanted: Annotated[Wanted, Query()]
    ) -> dict[str, Any]:
        """A page of the catalog, by skill id; `next` and the `Link` header name the one after."""
        page, following = _page(channel.graph, wanted)
        if following is not None:
            response.headers["Link"] = f'<{following}>; rel="next"'
        is_admin = caller.scope >= Scope.ADMIN
        rules = policy()
        told = [entry_data(entry, rules, all_of_it=is_admin) for entry in page]
        return {"skills": told, "next": following}

    @router.get(
        "/v1/skills/{skill_id:path}",
        response_model=SkillShown,
        responses={304: {"description": "As it was: `If-None-Match` names what it is"}},
    )
    def show_skill(
        skill_id: str,
        caller: Asking,
        if_none_match: Annotated[str | None, Header(description="an `ETag` of before")] = None,
    ) -> Response:
        """A skill with passages, links, past, and why it failed if it did."""
        is_admin = caller.scope >= Scope.ADMIN
        data = skill_data(
            channel.graph, channel.index(), skill_id, policy(), text=True, all_of_it=is_admin
        )
        entry = find_entry(channel.graph.entries([skill_id]), skill_id)
        data["history"] = history(channel, entry, letters=is_admin)
        return _tagged(data, if_none_match)

    @router.delete("/v1/skills/{skill_id:path}", status_code=202, dependencies=[needs(Scope.WRITE)])
    def remove_skill(
        skill_id: str, response: Response, caller: Asking, key: IdempotencyKey = None
    ) -> Accepted:
        """Withdraw a skill until its folder changes again, which is left as it is; one that came
        by value is deleted, and comes again by another upload."""
        find_entry(channel.graph.entries([skill_id]), skill_id)
        return accept_event(channel, caller, SkillRemoved(skill_id=skill_id), key, response)

    return router


def _page(graph: SkillGraph, wanted: Wanted) -> tuple[list[Entry], str | None]:
    """The entries of a page, and the path of the one after, None on the last."""
    asked = urlencode(wanted.asked())
    after = read_cursor(wanted.cursor, asked)
    page = graph.page(wanted.selection(), after, wanted.limit + 1)
    if len(page) <= wanted.limit:
        return page, None
    page = page[: wanted.limit]
    place = {"limit": wanted.limit, "cursor": cursor_of(page[-1].skill_id, asked)}
    return page, f"/v1/skills?{urlencode(wanted.asked() | place)}"


def _tagged(data: dict[str, Any], if_none_match: str | None) -> Response:
    """Data with an `ETag` that tells its content, or 304 where that is the one that is known."""
    body = json.dumps(data, ensure_ascii=False).encode()
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if _matches(if_none_match, tag):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=_MEDIA_TYPE)


def _matches(if_none_match: str | None, tag: str) -> bool:
    """Whether `If-None-Match` names a tag; compared weakly, since gzip changes the bytes."""
    named = [one.strip().removeprefix("W/") for one in (if_none_match or "").split(",")]
    return tag in named or "*" in named
