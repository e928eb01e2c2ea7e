"""Waivers: findings that do not count for single skills."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from skills.events.ids import SkillId, SourceId
from workers.audit.requests import note_object
from workers.backend.store_backend import StoreBackend
from workers.http.authentication import CurrentCaller
from workers.http.routes.review.decisions import Reason, get_principal
from workers.http.routes.revisions import Seq


class NewWaiver(BaseModel):
    """A rule to waive in a revision of a skill. seq: of the revision; unset: the published one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    skill_id: SkillId
    rule: str = Field(min_length=1, max_length=200)
    seq: Seq | None = None
    reason: Reason


class Waiver(BaseModel):
    """A waiver. findings: number of findings that it covers. state: `in force`, or `ended` as the
    skill has another content now. by: name of the token or the user. at: RFC 3339."""

    model_config = ConfigDict(frozen=True)

    skill_id: str
    rule: str
    seq: int
    content_hash: str
    findings: int
    state: str
    by: str
    at: str
    reason: str


class WaiverList(BaseModel):
    """Waivers by skill."""

    model_config = ConfigDict(frozen=True)

    waivers: list[Waiver]


def waiver_routes(backend: StoreBackend) -> APIRouter:
    """Return the routes of waivers."""
    router = APIRouter(tags=["reviews"])

    @router.get("/v1/waivers", response_model=WaiverList)
    def list_waivers(source: Annotated[SourceId | None, Query()] = None) -> dict[str, Any]:
        """List waivers of findings; those of earlier contents have ended."""
        return {"waivers": backend.review_lister.list_waivers(source)}

    @router.post("/v1/waivers", response_model=Waiver, status_code=201)
    def waive(waiver: NewWaiver, caller: CurrentCaller, request: Request) -> dict[str, Any]:
        """Waive the findings of a rule in a skill: they do not count until any
        of its files changes."""
        note_object(request, f"{waiver.skill_id} {waiver.rule}")
        return backend.waive_findings(
            waiver.skill_id, waiver.seq, waiver.rule, get_principal(caller), waiver.reason
        )

    @router.delete("/v1/waivers", status_code=204)
    def remove_waiver(
        skill_id: Annotated[SkillId, Query()],
        rule: Annotated[str, Query(min_length=1, max_length=200)],
    ) -> Response:
        """Take the waivers of a rule for a skill back."""
        backend.remove_waiver(skill_id, rule)
        return Response(status_code=204)

    return router
