"""Reviews: what waits for a person, decisions about it, and waivers of findings."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from skills.events.requests import SkillId, SourceId
from workers.audit.log import get_local_principal
from workers.audit.requests import note_object
from workers.backend.store_backend import StoreBackend
from workers.http.authentication import Caller, CurrentCaller
from workers.http.routes.revisions import RevisionComparison, Seq
from workers.library.link_dismissals import MAX_REASON_CHARACTERS
from workers.library.review_list import ReviewState
from workers.library.reviews import ReviewDecision
from workers.library.revisions import describe_review

_MAX_LINES = 2_000
_MAX_ITEMS = 1_000

Reason = Annotated[str, Field(min_length=1, max_length=MAX_REASON_CHARACTERS)]


class NewWaiver(BaseModel):
    """A rule to waive in a revision of a skill. seq: unset: the published one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    skill_id: SkillId
    rule: str = Field(min_length=1, max_length=200)
    seq: Seq | None = None
    reason: Reason


class Waiver(BaseModel):
    """A waiver. findings: how many it covers. state: `in force`, or `ended` as the skill has
    another content now. by: name of the token or the user. at: RFC 3339."""

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


class DecisionRequest(BaseModel):
    """A skill that is decided about. seq: of the revision; needed to approve and to reject; unset
    otherwise: the published one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    skill_id: SkillId
    seq: Seq | None = None
    reason: Reason


class Decision(BaseModel):
    """A decision that was carried out. withheld: why the revision is still kept out of bundles."""

    model_config = ConfigDict(frozen=True)

    skill_id: str
    seq: int
    decision: ReviewDecision
    by: str
    reason: str
    withheld: str | None


class DecidedBy(BaseModel):
    """Who decided, when and why."""

    model_config = ConfigDict(frozen=True)

    by: str
    at: str
    reason: str


class ReviewEntry(BaseModel):
    """A skill that waits for a person, or about which one has decided. level, rules: of all its
    findings. published_seq: null while no revision is published."""

    model_config = ConfigDict(frozen=True)

    skill_id: str
    about: Literal["findings", "update"]
    state: ReviewState
    seq: int
    published_seq: int | None
    level: int
    rules: list[str]
    decision: DecidedBy | None


class ReviewList(BaseModel):
    """Reviews by skill, first those about findings. truncated: whether there are more."""

    model_config = ConfigDict(frozen=True)

    reviews: list[ReviewEntry]
    truncated: bool


class ReviewQuery(BaseModel):
    """Which reviews."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    state: ReviewState | None = None
    source: SourceId | None = None
    limit: int = Field(_MAX_ITEMS, ge=1, le=_MAX_ITEMS)


class ReviewDetail(BaseModel):
    """A revision under review: its findings, with those that do not count marked, and how it
    differs from the published one, null if it is that or there is none."""

    model_config = ConfigDict(frozen=True, extra="allow")

    skill_id: str
    seq: int
    state: str
    review: str | None
    withheld: str | None
    safety_level: int
    safety: list[dict[str, Any]]
    change: RevisionComparison | None


def review_routes(backend: StoreBackend) -> APIRouter:
    """Return the routes of reviews and waivers."""
    router = APIRouter(tags=["reviews"])

    @router.get("/v1/review", response_model=ReviewList)
    def list_reviews(query: Annotated[ReviewQuery, Query()]) -> dict[str, Any]:
        """List skills that are withheld for findings, and updates that wait, with decisions."""
        found = (
            one.describe()
            for one in backend.review_lister.list_items(query.source)
            if query.state in (None, one.state)
        )
        rows = list(islice(found, query.limit + 1))
        return {"reviews": rows[: query.limit], "truncated": len(rows) > query.limit}

    @router.get("/v1/review/{skill_id:path}", response_model=ReviewDetail)
    def get_review(skill_id: str, seq: Annotated[Seq | None, Query()] = None) -> dict[str, Any]:
        """Show what is to be decided about a skill: its findings, and the change of an update."""
        data = describe_review(backend.revisions, skill_id, seq)
        if (change := data["change"]) is not None:
            change["diff"] = change["diff"][:_MAX_LINES]
        return data

    @router.post("/v1/review/{decision}", response_model=Decision, status_code=201)
    def decide(
        decision: ReviewDecision, body: DecisionRequest, caller: CurrentCaller, request: Request
    ) -> dict[str, Any]:
        """Release or confirm a withheld skill, approve or reject an update."""
        seq = "" if body.seq is None else f"@{body.seq}"
        note_object(request, f"{decision.value} {body.skill_id}{seq}")
        principal = _name(caller)
        return backend.review_skill(decision, body.skill_id, body.seq, principal, body.reason)

    @router.delete("/v1/review/{skill_id:path}", status_code=204)
    def reopen(skill_id: str) -> Response:
        """Take back what was decided about a skill as it is now; it waits again."""
        backend.reopen_review(skill_id)
        return Response(status_code=204)

    @router.get("/v1/waivers", response_model=WaiverList)
    def list_waivers(source: Annotated[SourceId | None, Query()] = None) -> dict[str, Any]:
        """List waivers of findings; those of earlier contents have ended."""
        return {"waivers": backend.review_lister.list_waivers(source)}

    @router.post("/v1/waivers", response_model=Waiver, status_code=201)
    def waive(waiver: NewWaiver, caller: CurrentCaller, request: Request) -> dict[str, Any]:
        """Waive what a rule finds in a skill: it does not count until any of its files changes."""
        note_object(request, f"{waiver.skill_id} {waiver.rule}")
        return backend.waive_findings(
            *(waiver.skill_id, waiver.seq, waiver.rule, _name(caller), waiver.reason)
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


def _name(caller: Caller) -> str:
    """The caller as the audit log names it."""
    return caller.name or get_local_principal()
