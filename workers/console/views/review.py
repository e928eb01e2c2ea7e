"""Review: skills that the policy withholds, updates that wait, and decisions about them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from skills.review import list_rule_ids
from workers.console.difference import describe_change
from workers.console.findings import group_by_rule
from workers.console.forms import Model, SentForm, get_next_url, get_text, validate
from workers.console.pages import PREFIX, build_url, redirect
from workers.console.text_display import review_path
from workers.console.view import CurrentView, PageParameters
from workers.http.authentication import NEEDS_ADMIN
from workers.http.routes.review import decisions, waivers
from workers.http.routes.review.decisions import DecisionRequest, ReviewQuery
from workers.http.routes.review.waivers import NewWaiver
from workers.http.routes.revisions import Seq
from workers.http.tokens import TokenScope
from workers.library.review.decisions import ReviewDecision
from workers.library.review.review_list import ReviewFilter, ReviewState

PATH = f"{PREFIX}/review"
ANY = "any"
ABOUT = {"findings": "findings", "update": "updates"}

_LIMIT = 25


class ReviewPageQuery(PageParameters):
    """Filters and page. state: `any` includes decided reviews; unset: reviews that wait."""

    path = PATH

    state: str = ""
    source: str = ""
    about: str = ""
    rule: str = ""
    cursor: str = ""

    def to_review_query(self) -> ReviewQuery:
        """Return the query of the HTTP API; raises UsageError for an invalid value."""
        state = None if self.state == ANY else self.state or ReviewState.WAITING
        values = {
            "state": state,
            "source": self.source or None,
            "about": self.about or None,
            "rule": self.rule or None,
            "limit": _LIMIT,
            "cursor": self.cursor,
        }
        return validate(ReviewQuery, values)


router = APIRouter()


@router.get("/review")
def show_reviews(view: CurrentView, query: Annotated[ReviewPageQuery, Query()]) -> Response:
    """Show a page of reviews, an empty one to callers that are not admins."""
    backend = view.backend
    found: dict[str, Any] = {"reviews": [], "next": None}
    counts, sources = None, []
    if view.caller.is_admin:
        found = decisions.list_reviews(backend, query.to_review_query())
        counts = backend.review_lister.count()
        sources = [one.source_id for one in backend.graph.list_sources()]
    return view.render(
        "review/list.html",
        section="Review",
        query=query,
        found=found,
        counts=counts,
        sources=sources,
        rules=list_rule_ids(),
        states=[one.value for one in ReviewState],
        about=ABOUT,
        next_url=query.next_url(found["next"]),
        is_filtered=query != ReviewPageQuery(cursor=query.cursor),
    )


@router.get("/review/{skill_id:path}", dependencies=NEEDS_ADMIN)
def show_review(
    view: CurrentView, skill_id: str, seq: Annotated[Seq | None, Query()] = None
) -> Response:
    """Show the findings and the change of a skill."""
    revision = decisions.get_review(view.backend, skill_id, seq)
    items = list(view.backend.review_lister.list_items(ReviewFilter(skill_id=skill_id)))
    return view.render(
        "review/skill.html",
        section="Review",
        revision=revision,
        items=[one.describe() for one in items],
        groups=group_by_rule(revision, view.backend.settings.policy.highest_level),
        change=describe_change(revision["change"]),
    )


@router.post("/actions/review/decide")
def decide(view: CurrentView, form: SentForm) -> Response:
    """Carry out a decision."""
    view.admit_change(TokenScope.ADMIN, get_text(form, "skill_id"))
    body = _read(DecisionRequest, form, "decision", "skill_id", "seq", "reason")
    decisions.decide(view.backend, view.caller, body, view.request)
    # An approved update is published under another number.
    seq = None if body.decision is ReviewDecision.APPROVE else body.seq
    return redirect(build_url(review_path(body.skill_id), {"seq": seq}))


@router.post("/actions/review/reopen")
def reopen(view: CurrentView, form: SentForm) -> Response:
    """Revoke a decision."""
    skill_id = get_text(form, "skill_id")
    view.admit_change(TokenScope.ADMIN, skill_id)
    view.backend.reopen_review(skill_id)
    return redirect(review_path(skill_id))


@router.post("/actions/waivers/add")
def waive(view: CurrentView, form: SentForm) -> Response:
    """Waive the findings of a rule."""
    view.admit_change(TokenScope.ADMIN, f"{get_text(form, 'skill_id')} {get_text(form, 'rule')}")
    body = _read(NewWaiver, form, "skill_id", "rule", "seq", "reason")
    waivers.waive(view.backend, view.caller, body, view.request)
    return redirect(get_next_url(form))


@router.post("/actions/waivers/remove")
def remove_waiver(view: CurrentView, form: SentForm) -> Response:
    """Remove waivers."""
    skill_id, rule = get_text(form, "skill_id"), get_text(form, "rule")
    view.admit_change(TokenScope.ADMIN, f"{skill_id} {rule}")
    view.backend.remove_waiver(skill_id, rule)
    return redirect(get_next_url(form))


def _read(model: type[Model], form: SentForm, *names: str) -> Model:
    """Return the HTTP API body with the values of a form; raises UsageError if it is invalid."""
    return validate(model, {name: text for name in names if (text := get_text(form, name))})
