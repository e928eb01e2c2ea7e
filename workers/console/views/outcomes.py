"""Outcomes: reports of a person about the skills of an answer."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from fastapi import APIRouter, Response

from config.errors import NotFoundError, UsageError
from skills.bundle.rejection import RejectionReason
from skills.events import SkillOutcome
from skills.outcomes.model import OutcomeKind, Reporter
from workers.audit.requests import note_object
from workers.backend.store_backend import StoreBackend
from workers.console.forms import SentForm, get_text, validate
from workers.console.pages import PREFIX, build_url, redirect
from workers.console.view import CurrentView
from workers.http.authentication import Caller
from workers.http.routes.outcomes import OutcomeReport, list_outcomes, report_outcomes

_OF_THE_TASK = [
    one
    for one in RejectionReason
    if one not in (RejectionReason.REDUNDANT, RejectionReason.INCOMPATIBLE)
]
"""Reasons that do not name another skill."""

CHOICES = {
    OutcomeKind.HELPED.value: "right: it helped, or would have",
    OutcomeKind.FAILED.value: "wrong: it was followed and did not work",
    **{f"{OutcomeKind.REJECTED}:{one}": f"wrong: {one.meaning}" for one in _OF_THE_TASK},
    OutcomeKind.MISSING.value: "no skill of the library is right",
}
"""Choices of the form: value and words."""


router = APIRouter()


@router.post("/actions/outcomes/report")
def report_outcome(view: CurrentView, form: SentForm) -> Response:
    """Report an outcome."""
    query_id, choice = get_text(form, "query_id"), get_text(form, "outcome")
    note_object(view.request, query_id)
    report = _read_report(get_text(form, "skill_id"), choice)
    _check_skill(view.backend, view.caller, report)
    report_outcomes(view.backend, view.caller, query_id, report, Response())
    return redirect(f"{build_url(f'{PREFIX}/ask/{query_id}', {'reported': 1})}#outcomes")


def _read_report(skill_id: str, choice: str) -> OutcomeReport:
    """Return the report of a form; raises UsageError if it is invalid."""
    if choice not in CHOICES:
        raise UsageError("outcome: choose a value from the list")
    kind, _, reason = choice.partition(":")
    is_missing = kind == OutcomeKind.MISSING
    if not skill_id and not is_missing:
        raise UsageError("choose the skill that the outcome is about")
    values = {
        "skill_id": "" if is_missing else skill_id,
        "outcome": kind,
        "reason": reason,
        "by": Reporter.PERSON,
    }
    return OutcomeReport(outcomes=(validate(SkillOutcome, values),))


def _check_skill(backend: StoreBackend, caller: Caller, report: OutcomeReport) -> None:
    """Raise NotFoundError if this caller cannot see the skill in the library."""
    skill_ids = [one.skill_id for one in report.outcomes if one.skill_id]
    if skill_ids and not backend.graph_for(caller.reader).get_entries(skill_ids):
        raise NotFoundError(f"the library has no skill {skill_ids[0]!r}; look it up by its words")


def describe_outcomes(backend: StoreBackend, caller: Caller, query_id: str) -> list[dict[str, Any]]:
    """Return the stored outcomes of an answer; none until the answer is recorded."""
    with suppress(NotFoundError):
        return list_outcomes(backend, caller, query_id).outcomes
    return []
