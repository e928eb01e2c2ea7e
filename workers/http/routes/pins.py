"""Pins: skills that stay at one revision, whatever the content of their source."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from skills.events.ids import SkillId
from skills.skill_policy import get_source_id
from workers.audit.requests import note_object
from workers.backend.store_backend import StoreBackend
from workers.http.authentication import Caller, CurrentCaller, check_source, require_scope
from workers.http.routes.revisions import RevisionComparison, Seq
from workers.http.tokens import TokenScope
from workers.library.reasons import MAX_REASON_CHARACTERS
from workers.library.revisions import not_pinned
from workers.library.skill_reader import require_entry

_MAX_LINES = 200


class NewPin(BaseModel):
    """A skill to pin, with the reason. seq: of the revision; unset: the published one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    skill_id: SkillId
    seq: Seq | None = None
    reason: str = Field(min_length=1, max_length=MAX_REASON_CHARACTERS)


class PinEntry(BaseModel):
    """A pinned skill. pinned_at: RFC 3339."""

    model_config = ConfigDict(frozen=True)

    skill_id: str
    seq: int
    reason: str
    pinned_at: str


class PinDrift(PinEntry):
    """A pinned skill and the update that its pin holds back: `change` from the published revision
    to the newest of the source, with the first lines of its diff; null if nothing is held."""

    change: RevisionComparison | None


class PinList(BaseModel):
    """Pins by skill."""

    model_config = ConfigDict(frozen=True)

    pins: list[PinEntry]


class DriftList(BaseModel):
    """Pins by skill, with the changes in their sources."""

    model_config = ConfigDict(frozen=True)

    pins: list[PinDrift]


def pin_routes(backend: StoreBackend) -> APIRouter:
    """Return the routes of pins."""
    router = APIRouter(tags=["skills"])

    @router.get("/v1/pins", response_model=PinList)
    def list_pins(caller: CurrentCaller) -> dict[str, Any]:
        """List the pinned skills with the reasons."""
        return {"pins": backend.revisions_for(caller.reader).describe_pins()}

    @router.get(
        "/v1/pins/drift",
        response_model=DriftList,
        dependencies=[require_scope(TokenScope.ADMIN)],
    )
    def show_drift(skill_id: Annotated[SkillId | None, Query()] = None) -> dict[str, Any]:
        """Show how the sources of pinned skills differ from the pinned revisions."""
        rows = backend.revisions.find_drift(skill_id)
        for row in rows:
            if (change := row["change"]) is not None:
                change["diff"] = change["diff"][:_MAX_LINES]
        return {"pins": rows}

    @router.post(
        "/v1/pins",
        response_model=PinEntry,
        status_code=201,
        dependencies=[require_scope(TokenScope.WRITE)],
    )
    def pin_skill(pin: NewPin, caller: CurrentCaller, request: Request) -> dict[str, Any]:
        """Pin a skill: it stays at this revision; later contents of its source are held back."""
        note_object(request, pin.skill_id)
        return pin_published(backend, caller, pin.skill_id, pin.seq, pin.reason)

    @router.delete(
        "/v1/pins/{skill_id:path}",
        status_code=204,
        dependencies=[require_scope(TokenScope.WRITE)],
    )
    def unpin_skill(skill_id: str, caller: CurrentCaller) -> Response:
        """Remove a pin: the skill is published with the current content of its source."""
        take_pin_back(backend, caller, skill_id)
        return Response(status_code=204)

    return router


def pin_published(
    backend: StoreBackend, caller: Caller, skill_id: str, seq: int | None, reason: str
) -> dict[str, Any]:
    """Pin a skill that this caller may see and change; seq: None for the published revision."""
    check_source(caller, get_source_id(skill_id))
    require_entry(backend.graph_for(caller.reader), skill_id)
    return backend.pin_skill(skill_id, seq, reason)


def take_pin_back(backend: StoreBackend, caller: Caller, skill_id: str) -> None:
    """Take back a pin that this caller may see and change; raises NotFoundError without one."""
    check_source(caller, get_source_id(skill_id))
    if not backend.revisions_for(caller.reader).describe_pins([skill_id]):
        raise not_pinned(skill_id)
    backend.unpin_skill(skill_id)
