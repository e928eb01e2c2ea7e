"""Examples of all event types, for the published documents."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Any

from skills.bundle.model import BundlePassage, BundleSkill, Revision
from skills.bundle.rejection import RejectionReason
from skills.events.correlation import new_reply
from skills.events.envelope import Event, new_event
from skills.events.replies import (
    REPLIES,
    MessageRefused,
    OutcomesRecorded,
    OutcomesRefused,
    QueryAnswered,
    QueryFailed,
    Reply,
    SkillFailed,
    SkillPublished,
)
from skills.events.requests import (
    OutcomesReported,
    QueryAsked,
    Request,
    SkillOutcome,
    SkillRemoved,
    SkillUpserted,
    SourceChanged,
    SourceRemoved,
)
from skills.outcomes.model import OutcomeKind, Reporter, TaskResult

_TIME = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)
_QUERY_ID = "8d2f6f0d4a4e4c1c9b7a5e1d3c2b1a00"
_SKILL_ID = "team:trip-cleaning"
_HASH = "6f1d" * 16


def _requests() -> tuple[tuple[str, Request], ...]:
    return (
        (
            "deploy-4711",
            SourceChanged(source_id="team", root="/srv/skills", paths=("trip-cleaning",)),
        ),
        ("deploy-4712", SourceRemoved(source_id="team")),
        (
            "notes-18",
            SkillUpserted(
                skill_id="notes:minutes",
                files={
                    "SKILL.md": "---\nname: minutes\ndescription: Minutes of a meeting.\n"
                    "---\n# Minutes\n\n1. List who was there.\n2. Write down each decision.\n",
                    "templates/short.md": "# Decisions\n",
                },
            ),
        ),
        ("notes-19", SkillRemoved(skill_id="notes:minutes")),
        (
            "task-93-tests",
            OutcomesReported(
                query_id=_QUERY_ID,
                outcomes=(
                    SkillOutcome(
                        skill_id=_SKILL_ID, outcome=OutcomeKind.HELPED, by=Reporter.VERIFIER
                    ),
                    SkillOutcome(
                        skill_id="team:map-styles",
                        outcome=OutcomeKind.REJECTED,
                        reason=RejectionReason.WRONG_STEP,
                    ),
                ),
                task_result=TaskResult.SUCCEEDED,
            ),
        ),
        ("question-1", QueryAsked(task="Clean the GPS tracks of a bike trip", budget=2000, top=3)),
    )


def _bundle() -> QueryAnswered:
    return QueryAnswered(
        query_id=_QUERY_ID,
        status="SKILL_HIT",
        task="Clean the GPS tracks of a bike trip",
        budget=2000,
        tokens=412,
        skills=(
            BundleSkill(
                skill_id=_SKILL_ID,
                name="trip-cleaning",
                description="Removes jumps and pauses from GPS tracks.",
                source="team",
                path="/srv/skills/trip-cleaning",
                revision=Revision(seq=7, content_hash=_HASH),
                licence="Apache-2.0",
                language="en",
                score=3.2,
                why=("words: gps, tracks, trip",),
                passages=(
                    BundlePassage(
                        first_line=9,
                        last_line=9,
                        heading_path=("Trip cleaning", "Steps"),
                        roles=("step",),
                        text="1. Drop points that are faster than 40 m/s.",
                    ),
                ),
                tokens=158,
            ),
        ),
        timings_ms={"understand": 0.4, "retrieve": 6.1, "select_passages": 4.2},
    )


def _answers() -> tuple[tuple[str, Reply], ...]:
    return (
        ("question-1", _bundle()),
        ("question-1", QueryFailed(query_id=_QUERY_ID, reason="expired before a worker took it")),
        (
            "notes-18",
            SkillPublished(
                skill_id="notes:minutes",
                revision=Revision(seq=8, content_hash=_HASH),
                name="minutes",
            ),
        ),
        ("notes-18", SkillFailed(skill_id="notes:minutes", reason="SKILL.md: no frontmatter")),
        ("task-93-tests", OutcomesRecorded(query_id=_QUERY_ID, outcomes=2)),
        (
            "task-93-tests",
            OutcomesRefused(
                query_id=_QUERY_ID,
                reason=f"no answered query '{_QUERY_ID}'; give the query id of an answer. Outcomes "
                "are accepted for `learning.days` days after it",
            ),
        ),
        (
            "notes-18",
            MessageRefused(
                reason="event notes-18: skill_id: Field required",
                letter_id="019aa0b2c400-5f0e9a1b",
                message_id="notes-18",
            ),
        ),
    )


@cache
def example_events() -> dict[str, Event]:
    """Return type -> an event of that type; each reply answers one of the requests."""
    requests = {}
    for event_id, data in _requests():
        details = {"id": event_id, "source": "my-ci", "time": _TIME}
        if isinstance(data, QueryAsked | SkillUpserted | OutcomesReported):
            details |= {"replyto": "skillbus.replies.my-ci", "correlationid": f"{event_id}-try-1"}
        requests[event_id] = new_event(data, "my-ci").model_copy(update=details)
    found = {event.type: event for event in requests.values()}
    for question_id, answer in _answers():
        event = new_reply(requests[question_id], answer, "skillbus/consume")
        found[event.type] = event.model_copy(update={"time": _TIME})
    return found


def get_example(name: str) -> dict[str, Any]:
    """Return the example of a type as JSON data, without options that a request leaves unset."""
    event = example_events()[name].model_dump(mode="json")
    if name not in REPLIES:
        event["data"] = {
            key: value
            for key, value in event["data"].items()
            if value not in (None, [], False) and key != "filters"
        }
    return event
