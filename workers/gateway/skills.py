"""Skills: listed, shown with all that is known of them, and withdrawn."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from graph.protocol import Entry, State
from skills.events import SkillRemoved
from workers.channel import Channel
from workers.gateway.door import Asking, needs
from workers.gateway.idempotency import IdempotencyKey, accept
from workers.gateway.queries import Accepted
from workers.gateway.tokens import Scope
from workers.skill_data import entry_data, find_entry, skill_data

_MEDIA_TYPE = "application/json"


class SkillEntry(BaseModel):
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
    warnings: int
    safety_level: int
    tokens: int
    language: str
    licence: str
    paged: bool


class Moment(BaseModel):
    """Something that is known of a skill's past; at: RFC 3339."""

    model_config = ConfigDict(frozen=True)

    what: str
    seq: int | None
    at: str | None
    reason: str | None


class SkillShown(SkillEntry):
    """A skill with its links and its past; a published one with its record and passages."""

    links: list[dict[str, Any]]
    history: list[Moment]


class SkillPage(BaseModel):
    """Skills by id; next: the path of the page that follows, null on the last one."""

    model_config = ConfigDict(frozen=True)

    skills: list[SkillEntry]
    next: str | None


class Wanted(BaseModel):
    """Which skills are listed; a name that is no filter is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str | None = Field(None, description="only of this source")
    state: State | None = Field(None, description="only in this state")
    name: str | None = Field(None, description="only of exactly this name")
    after: str = Field("", description="the cursor: skills whose id sorts after")
    limit: int = Field(100, ge=1, le=1_000)


def skill_routes(channel: Channel) -> APIRouter:
    """The routes of skills over an open channel; uploads have their own."""
    router = APIRouter(tags=["skills"])

    @router.get("/v1/skills", response_model=SkillPage)
    def list_skills(
        response: Response,
        wanted: Annotated[Wanted, Query()],
    ) -> dict[str, Any]:
        """A page of the catalog, by skill id; `next` and the `Link` header name the one after."""
        entries = _filtered(_entries(channel, wanted.source), wanted)
        page = [entry for entry, _ in zip(entries, range(wanted.limit + 1), strict=False)]
        following = None
        if len(page) > wanted.limit:
            last = page[wanted.limit - 1].skill_id
            asked = wanted.model_copy(update={"after": last}).model_dump(mode="json")
            kept = {key: value for key, value in asked.items() if value is not None}
            following = f"/v1/skills?{urlencode(kept)}"
            response.headers["Link"] = f'<{following}>; rel="next"'
        page = page[: wanted.limit]
        return {"skills": [entry_data(entry) for entry in page], "next": following}

    @router.get(
        "/v1/skills/{skill_id:path}",
        response_model=SkillShown,
        responses={304: {"description": "As it was: `If-None-Match` names what it is"}},
    )
    def show_skill(
        skill_id: str,
        request: Request,
        if_none_match: Annotated[str | None, Header(description="an `ETag` of before")] = None,
    ) -> Response:
        """A skill with passages, links, past, and why it failed if it did."""
        data = skill_data(channel.graph, channel.index(), skill_id, text=True)
        body = json.dumps(data, ensure_ascii=False).encode()
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
        del request
        if _matches(if_none_match, tag):
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type=_MEDIA_TYPE)

    @router.delete("/v1/skills/{skill_id:path}", status_code=202, dependencies=[needs(Scope.WRITE)])
    def remove_skill(
        skill_id: str, response: Response, caller: Asking, key: IdempotencyKey = None
    ) -> Accepted:
        """Withdraw a skill until its folder changes again; no file is touched."""
        find_entry(channel.graph.entries([skill_id]), skill_id)
        event_id = accept(channel, caller, SkillRemoved(skill_id=skill_id), key)
        response.headers["Location"] = f"/v1/events/{event_id}"
        return Accepted(id=event_id)

    return router


def _entries(channel: Channel, source: str | None) -> Sequence[Entry]:
    graph = channel.graph
    return graph.entries() if source is None else graph.entries_under(source, "")


def _filtered(entries: Sequence[Entry], wanted: Wanted) -> Iterator[Entry]:
    for entry in sorted(entries, key=lambda entry: entry.skill_id):
        if (
            entry.skill_id > wanted.after
            and wanted.state in (None, entry.state)
            and wanted.name in (None, entry.name)
        ):
            yield entry


def _matches(if_none_match: str | None, tag: str) -> bool:
    """Whether `If-None-Match` names a tag; compared weakly, since gzip changes the bytes."""
    named = [one.strip().removeprefix("W/") for one in (if_none_match or "").split(",")]
    return tag in named or "*" in named
