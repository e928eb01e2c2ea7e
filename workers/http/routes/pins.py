"""Pins: skills that stay at one revision, whatever the content of their source."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from skills.events.ids import SkillId
from skills.record import get_source_id
from workers.audit.requests import note_object
from workers.http.authentication import (
    NEEDS_ADMIN,
    NEEDS_WRITE,
    CurrentCaller,
    check_source,
)
from workers.http.dependencies import CurrentBackend
from workers.http.models import Reason, RequestModel, ResponseModel
from workers.http.routes.revisions import RevisionComparison, Seq
from workers.library.revisions import not_pinned
from workers.library.skill_reader import require_entry

_MAX_LINES = 200


class NewPin(RequestModel):
    """A skill to pin, with the reason. seq: of the revision; unset: the published one."""

    skill_id: SkillId
    seq: Seq | None = None
    reason: Reason


class PinEntry(ResponseModel):
    """A pinned skill. pinned_at: RFC 3339."""

    skill_id: str
    seq: int
    reason: str
    pinned_at: str


class PinDrift(PinEntry):
    """A pinned skill and the update that its pin holds back: `change` from the published revision
    to the newest of the source, with the first lines of its diff; null if nothing is held."""

    change: RevisionComparison | None


class PinList(ResponseModel):
    """Pins by skill."""

    pins: list[PinEntry]


class DriftList(ResponseModel):
    """Pins by skill, with the changes in their sources."""

    pins: list[PinDrift]


router = APIRouter(tags=["skills"])


@router.get("/v1/pins", response_model=PinList)
def list_pins(backend: CurrentBackend, caller: CurrentCaller) -> dict[str, Any]:
    """List the pinned skills with the reasons."""
    return {"pins": backend.revisions_for(caller.reader).describe_pins()}


@router.get("/v1/pins/drift", response_model=DriftList, dependencies=NEEDS_ADMIN)
def show_drift(
    backend: CurrentBackend, skill_id: Annotated[SkillId | None, Query()] = None
) -> dict[str, Any]:
    """Show how the sources of pinned skills differ from the pinned revisions."""
    rows = backend.revisions.find_drift(skill_id)
    for row in rows:
        if (change := row["change"]) is not None:
            change["diff"] = change["diff"][:_MAX_LINES]
    return {"pins": rows}


@router.post("/v1/pins", response_model=PinEntry, status_code=201, dependencies=NEEDS_WRITE)
def pin_skill(
    backend: CurrentBackend, caller: CurrentCaller, pin: NewPin, request: Request
) -> dict[str, Any]:
    """Pin a skill: it stays at this revision; newer content of its source is held back."""
    note_object(request, pin.skill_id)
    check_source(caller, get_source_id(pin.skill_id))
    require_entry(backend.graph_for(caller.reader), pin.skill_id)
    return backend.pin_skill(pin.skill_id, pin.seq, pin.reason)


@router.delete("/v1/pins/{skill_id:path}", status_code=204, dependencies=NEEDS_WRITE)
def unpin_skill(backend: CurrentBackend, caller: CurrentCaller, skill_id: str) -> None:
    """Remove a pin: the skill is published with the current content of its source."""
    check_source(caller, get_source_id(skill_id))
    if not backend.revisions_for(caller.reader).describe_pins([skill_id]):
        raise not_pinned(skill_id)
    backend.unpin_skill(skill_id)
