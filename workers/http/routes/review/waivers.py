"""Waivers: findings that do not count for single skills."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import Field

from skills.events.ids import SkillId, SourceId
from workers.audit.requests import note_object
from workers.http.authentication import CurrentCaller
from workers.http.dependencies import CurrentBackend
from workers.http.models import Reason, RequestModel, ResponseModel
from workers.http.routes.review.decisions import get_principal
from workers.http.routes.revisions import Seq


class NewWaiver(RequestModel):
    """A rule to waive in a revision of a skill. seq: of the revision; unset: the published one."""

    skill_id: SkillId
    rule: str = Field(min_length=1, max_length=200)
    seq: Seq | None = None
    reason: Reason


class Waiver(ResponseModel):
    """A waiver. findings: number of findings that it covers. state: `in force`, or `ended` as the
    skill has another content now. by: name of the token or the user. at: RFC 3339."""

    skill_id: str
    rule: str
    seq: int
    content_hash: str
    findings: int
    state: str
    by: str
    at: str
    reason: str


class WaiverList(ResponseModel):
    """Waivers by skill."""

    waivers: list[Waiver]


router = APIRouter(tags=["reviews"])


@router.get("/v1/waivers", response_model=WaiverList)
def list_waivers(
    backend: CurrentBackend, source: Annotated[SourceId | None, Query()] = None
) -> dict[str, Any]:
    """List waivers of findings; a waiver has ended if the skill has changed since."""
    return {"waivers": backend.review_lister.list_waivers(source)}


@router.post("/v1/waivers", response_model=Waiver, status_code=201)
def waive(
    backend: CurrentBackend, caller: CurrentCaller, waiver: NewWaiver, request: Request
) -> dict[str, Any]:
    """Waive the findings of a rule in a skill: they do not count until any
    of its files changes."""
    note_object(request, f"{waiver.skill_id} {waiver.rule}")
    return backend.waive_findings(
        waiver.skill_id, waiver.seq, waiver.rule, get_principal(caller), waiver.reason
    )


@router.delete("/v1/waivers", status_code=204)
def remove_waiver(
    backend: CurrentBackend,
    skill_id: Annotated[SkillId, Query()],
    rule: Annotated[str, Query(min_length=1, max_length=200)],
) -> None:
    """Remove the waivers of a rule for a skill."""
    backend.remove_waiver(skill_id, rule)
