"""Reviews: what waits for a person, and decisions about it."""

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
from workers.library.review.decisions import ReviewDecision
from workers.library.review.review_list import ReviewState
from workers.library.revisions import describe_review

_MAX_LINES = 2_000
_MAX_ITEMS = 1_000

Reason = Annotated[str, Field(min_length=1, max_length=MAX_REASON_CHARACTERS)]


class DecisionRequest(BaseModel):
    """A skill that is decided about. seq: of the revision; needed to approve and to reject; unset
    otherwise: the published one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    decision: ReviewDecision
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
    """Return the routes of reviews."""
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

    @router.post("/v1/review", response_model=Decision, status_code=201)
    def decide(body: DecisionRequest, caller: CurrentCaller, request: Request) -> dict[str, Any]:
        """Release or confirm a withheld skill, approve or reject an update."""
        seq = "" if body.seq is None else f"@{body.seq}"
        note_object(request, f"{body.decision.value} {body.skill_id}{seq}")
        return backend.review_skill(
            *(body.decision, body.skill_id, body.seq, get_principal(caller), body.reason)
        )

    @router.delete("/v1/review/{skill_id:path}", status_code=204)
    def reopen(skill_id: str) -> Response:
        """Take back what was decided about a skill as it is now; it waits again."""
        backend.reopen_review(skill_id)
        return Response(status_code=204)

    return router


def get_principal(caller: Caller) -> str:
    """The caller as the audit log names it."""
    return caller.name or get_local_principal()
