"""Reviews: skills that wait for a person, and decisions about them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from skills.events.ids import SkillId, SourceId
from skills.skill_policy import check_rule_ids
from workers.audit.log import get_local_principal
from workers.audit.requests import note_object
from workers.http.authentication import Caller, CurrentCaller
from workers.http.cursors import PageQuery
from workers.http.dependencies import CurrentBackend
from workers.http.models import Reason, RequestModel, ResponseModel
from workers.http.routes.revisions import RevisionComparison, Seq
from workers.library.review.decisions import ReviewDecision
from workers.library.review.review_list import ReviewFilter, ReviewPlace, ReviewState
from workers.library.revisions import describe_review

_MAX_LINES = 2_000
_MAX_ITEMS = 1_000
_PATH = "/v1/review"


class DecisionRequest(RequestModel):
    """A decision about a skill. seq: of the revision; needed to approve and to reject; otherwise by
    default the published one."""

    decision: ReviewDecision
    skill_id: SkillId
    seq: Seq | None = None
    reason: Reason


class Decision(ResponseModel):
    """A decision that was carried out. withheld: why the revision is still kept out of bundles."""

    skill_id: str
    seq: int
    decision: ReviewDecision
    by: str
    reason: str
    withheld: str | None


class DecidedBy(ResponseModel):
    """The author, time and reason of a decision."""

    by: str
    at: str
    reason: str


class ReviewEntry(ResponseModel):
    """A skill that waits for a person's decision, or has one. level, rules: of its findings that
    count. finding: the most severe of these, null for an update and if none counts. published_seq:
    null while no revision is published."""

    skill_id: str
    about: Literal["findings", "update"]
    state: ReviewState
    seq: int
    published_seq: int | None
    level: int
    rules: list[str]
    finding: dict[str, Any] | None
    decision: DecidedBy | None


class ReviewList(ResponseModel):
    """A page of reviews by skill, first those about findings. truncated: whether there are more.
    next: path of the next page, null on the last one; a page may have fewer reviews than `limit`,
    or none, and not be the last."""

    reviews: list[ReviewEntry]
    truncated: bool
    next: str | None


class ReviewQuery(PageQuery):
    """Filters and page of a list of reviews. Other parameters are rejected."""

    state: ReviewState | None = None
    source: SourceId | None = None
    about: Literal["findings", "update"] | None = None
    rule: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="only skills with findings of this rule, waived or not",
    )
    limit: int = Field(_MAX_ITEMS, ge=1, le=_MAX_ITEMS)

    def to_filter(self) -> ReviewFilter:
        """Return the filter; raises UsageError for a rule that does not exist."""
        if self.rule is not None:
            check_rule_ids([self.rule], "rule")
        return ReviewFilter(self.state, self.source, self.about, self.rule)


class ReviewDetail(BaseModel):
    """A revision under review. Each finding has whether it counts and, in SKILL.md, the
    lines around it. The difference from the published revision is null if it is that
    revision, or none is published."""

    model_config = ConfigDict(frozen=True, extra="allow")

    skill_id: str
    seq: int
    state: str
    review: str | None
    withheld: str | None
    safety_level: int
    safety: list[dict[str, Any]]
    change: RevisionComparison | None


router = APIRouter(tags=["reviews"])


@router.get(_PATH, response_model=ReviewList)
def list_reviews(backend: CurrentBackend, query: Annotated[ReviewQuery, Query()]) -> dict[str, Any]:
    """List skills that are withheld for findings, and updates that wait, with decisions."""
    after = _parse_place(query.decode_cursor(_PATH))
    page = backend.review_lister.find_page(query.to_filter(), after, query.limit)
    next_path = None
    if page.after is not None:
        next_path = query.make_next_path(_PATH, " ".join(page.after))
    return {
        "reviews": [one.describe() for one in page.items],
        "truncated": next_path is not None,
        "next": next_path,
    }


def _parse_place(text: str) -> ReviewPlace | None:
    about, _, skill_id = text.partition(" ")
    return ReviewPlace(about, skill_id) if text else None


@router.get("/v1/review/{skill_id:path}", response_model=ReviewDetail)
def get_review(
    backend: CurrentBackend, skill_id: str, seq: Annotated[Seq | None, Query()] = None
) -> dict[str, Any]:
    """Show a skill under review: its findings, and the change of an update."""
    data = describe_review(backend.revisions, skill_id, seq)
    if (change := data["change"]) is not None:
        change["diff"] = change["diff"][:_MAX_LINES]
    return data


@router.post(_PATH, response_model=Decision, status_code=201)
def decide(
    backend: CurrentBackend, caller: CurrentCaller, body: DecisionRequest, request: Request
) -> dict[str, Any]:
    """Release or confirm a withheld skill, approve or reject an update."""
    # As the commands are recorded.
    seq = "" if body.seq is None else f"@{body.seq}"
    note_object(request, f"{body.skill_id}{seq}", f"review.{body.decision.value}")
    principal = get_principal(caller)
    return backend.review_skill(body.decision, body.skill_id, body.seq, principal, body.reason)


@router.delete("/v1/review/{skill_id:path}", status_code=204)
def reopen(backend: CurrentBackend, skill_id: str) -> None:
    """Revoke the decision about the current content of a skill; it waits for a review again."""
    backend.reopen_review(skill_id)


def get_principal(caller: Caller) -> str:
    """Return the name of the caller in the audit log."""
    return caller.name or get_local_principal()
