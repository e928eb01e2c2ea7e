"""Review: skills that the policy withholds, updates that wait, and decisions about them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict

from skills.review import list_rule_ids
from workers.audit.requests import note_object
from workers.backend.store_backend import StoreBackend
from workers.console.difference import describe_change
from workers.console.findings import group_by_rule
from workers.console.forms import Model, SentForm, get_next_url, get_text, validate
from workers.console.pages import PREFIX, Pages, build_url, find_cursor, redirect
from workers.console.text_display import review_path
from workers.http.authentication import CurrentCaller, check_scope
from workers.http.routes.review.decisions import (
    DecisionRequest,
    ReviewQuery,
    describe_one_review,
    get_principal,
    list_review_page,
    note_decision,
)
from workers.http.routes.review.waivers import NewWaiver
from workers.http.routes.revisions import Seq
from workers.http.tokens import TokenScope
from workers.library.review.decisions import ReviewDecision
from workers.library.review.review_list import ReviewFilter, ReviewState

PATH = f"{PREFIX}/review"
ANY = "any"
ABOUT = {"findings": "findings", "update": "updates"}

_LIMIT = 25


class ReviewPageQuery(BaseModel):
    """Filters and page. state: `any` includes decided reviews; unset: reviews that wait."""

    model_config = ConfigDict(frozen=True)

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

    def url(self, **changes: str) -> str:
        """Return the URL of the page with changed filters, on its first page."""
        return build_url(PATH, self.model_dump(exclude={"cursor"}) | changes)


def review_views(backend: StoreBackend, pages: Pages) -> APIRouter:
    """Return the routes of reviews."""
    router = APIRouter()

    @router.get("/review")
    def show_reviews(
        request: Request, caller: CurrentCaller, query: Annotated[ReviewPageQuery, Query()]
    ) -> Response:
        found: dict[str, Any] = {"reviews": [], "next": None}
        counts, sources = None, []
        if caller.is_admin:
            found = list_review_page(backend, query.to_review_query())
            counts = backend.review_lister.count()
            sources = [one.source_id for one in backend.graph.list_sources()]
        cursor = find_cursor(found["next"])
        return pages.render(
            request,
            "review/list.html",
            section="Review",
            query=query,
            found=found,
            counts=counts,
            sources=sources,
            rules=list_rule_ids(),
            states=[one.value for one in ReviewState],
            about=ABOUT,
            next_url=query.url(cursor=cursor) if cursor else "",
            is_filtered=query != ReviewPageQuery(cursor=query.cursor),
        )

    @router.get("/review/{skill_id:path}")
    def show_review(
        skill_id: str,
        request: Request,
        caller: CurrentCaller,
        seq: Annotated[Seq | None, Query()] = None,
    ) -> Response:
        check_scope(caller, TokenScope.ADMIN)
        revision = describe_one_review(backend, skill_id, seq)
        items = list(backend.review_lister.list_items(ReviewFilter(skill_id=skill_id)))
        return pages.render(
            request,
            "review/skill.html",
            section="Review",
            revision=revision,
            items=[one.describe() for one in items],
            groups=group_by_rule(revision, backend.settings.policy.highest_level),
            change=describe_change(revision["change"]),
        )

    _add_actions(router, backend)
    return router


def _add_actions(router: APIRouter, backend: StoreBackend) -> None:
    @router.post("/actions/review/decide")
    def decide(request: Request, caller: CurrentCaller, form: SentForm) -> Response:
        note_object(request, get_text(form, "skill_id"))
        check_scope(caller, TokenScope.ADMIN)
        body = _read(DecisionRequest, form, "decision", "skill_id", "seq", "reason")
        note_decision(request, body)
        backend.review_skill(
            *(body.decision, body.skill_id, body.seq, get_principal(caller), body.reason)
        )
        # An approved update is published under another number.
        seq = None if body.decision is ReviewDecision.APPROVE else body.seq
        return redirect(build_url(review_path(body.skill_id), {"seq": seq}))

    @router.post("/actions/review/reopen")
    def reopen(request: Request, caller: CurrentCaller, form: SentForm) -> Response:
        skill_id = get_text(form, "skill_id")
        note_object(request, skill_id)
        check_scope(caller, TokenScope.ADMIN)
        backend.reopen_review(skill_id)
        return redirect(review_path(skill_id))

    @router.post("/actions/waivers/add")
    def waive(request: Request, caller: CurrentCaller, form: SentForm) -> Response:
        note_object(request, f"{get_text(form, 'skill_id')} {get_text(form, 'rule')}")
        check_scope(caller, TokenScope.ADMIN)
        body = _read(NewWaiver, form, "skill_id", "rule", "seq", "reason")
        backend.waive_findings(
            *(body.skill_id, body.seq, body.rule, get_principal(caller), body.reason)
        )
        return redirect(get_next_url(form))

    @router.post("/actions/waivers/remove")
    def remove_waiver(request: Request, caller: CurrentCaller, form: SentForm) -> Response:
        skill_id, rule = get_text(form, "skill_id"), get_text(form, "rule")
        note_object(request, f"{skill_id} {rule}")
        check_scope(caller, TokenScope.ADMIN)
        backend.remove_waiver(skill_id, rule)
        return redirect(get_next_url(form))


def _read(model: type[Model], form: SentForm, *names: str) -> Model:
    """Return the HTTP API body with the values of a form; raises UsageError if it is invalid."""
    return validate(model, {name: text for name in names if (text := get_text(form, name))})
