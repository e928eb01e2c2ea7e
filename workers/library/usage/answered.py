"""Answered queries of a range of days, newest first, with similar tasks together."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from skills.outcomes.model import AnsweredQuery, Outcome, OutcomeKind
from tasks.outcomes.protocol import AnswerPlace, OutcomeStore
from workers.library.skill_data import format_time
from workers.library.usage.findings import MAX_SHOWN_CHARACTERS
from workers.library.usage.report import UsageFilter, format_day

NEWEST = AnswerPlace(math.inf, "")
"""Place before the newest query."""

_BATCH = 200
_MAX_READ = 10_000
"""Maximum of answered queries that are read for a page."""


class QueryOutcome(StrEnum):
    """Outcome of a query: how it was answered, or what was reported of it."""

    HIT = "hit"
    NO_HIT = "no_hit"
    UNREPORTED = "unreported"
    USED = "used"
    HELPED = "helped"
    FAILED = "failed"
    REJECTED = "rejected"
    SUPERSEDED = "superseded"
    MISSING = "missing"

    @property
    def is_reported(self) -> bool:
        """Whether it is a reported outcome."""
        return self.value in list(OutcomeKind)

    def covers(self, answer: AnsweredQuery, reported: Sequence[Outcome]) -> bool:
        """Return whether a query has this outcome."""
        if self in (QueryOutcome.HIT, QueryOutcome.NO_HIT):
            return answer.hit == (self is QueryOutcome.HIT)
        if self is QueryOutcome.UNREPORTED:
            return not reported
        return any(one.kind.value == self for one in reported)


@dataclass(frozen=True, slots=True)
class AnswerFilter:
    """Filter of answered queries, and of their skills that are shown.

    first: number of the first day. outcome: None for any. can_see: returns whether queries of an
    owner may be seen. visible: sources whose skills the reader may see, None for all.
    """

    first: int
    outcome: QueryOutcome | None
    can_see: Callable[[str], bool]
    visible: frozenset[str] | None

    def covers(self, answer: AnsweredQuery, reported: Sequence[Outcome]) -> bool:
        """Return whether a query matches."""
        if not answer.is_use or not self.can_see(answer.owner):
            return False
        return self.outcome is None or self.outcome.covers(answer, reported)

    def hide(
        self, answer: AnsweredQuery, reported: Sequence[Outcome]
    ) -> tuple[AnsweredQuery, tuple[Outcome, ...]]:
        """Return a query and its outcomes without the skills that the reader may not see."""
        selection = UsageFilter(visible=self.visible)
        skills = tuple(one for one in answer.skills if selection.sees(one.skill_id))
        return replace(answer, skills=skills), selection.hide(reported)


@dataclass(frozen=True, slots=True)
class AnsweredPage:
    """Answered queries, newest first, and their outcomes by query. next: the place of
    the next page, None if there are no more; a page may have fewer queries than its
    limit and not be the last."""

    answers: list[AnsweredQuery]
    outcomes: Mapping[str, tuple[Outcome, ...]]
    next: AnswerPlace | None


def list_answered(
    store: OutcomeStore, wanted: AnswerFilter, place: AnswerPlace, limit: int
) -> AnsweredPage:
    """Return the matching queries before a place, at most `limit`."""
    found: list[AnsweredQuery] = []
    outcomes: dict[str, tuple[Outcome, ...]] = {}
    for _ in range(_MAX_READ // _BATCH):
        batch = store.list_answers_before(place, _BATCH)
        if not batch:
            return AnsweredPage(found, outcomes, None)
        reported = store.get_outcomes([one.query_id for one in batch])
        for stored in batch:
            if stored.day < wanted.first:
                return AnsweredPage(found, outcomes, None)
            answer, shown = wanted.hide(stored, reported.get(stored.query_id, ()))
            if wanted.covers(answer, shown):
                if len(found) == limit:
                    return AnsweredPage(found, outcomes, place)
                found.append(answer)
                outcomes[answer.query_id] = shown
            place = _get_place(answer)
    return AnsweredPage(found, outcomes, place)


def describe_answered(
    groups: Sequence[Sequence[AnsweredQuery]], page: AnsweredPage, kept: Collection[str]
) -> list[dict[str, Any]]:
    """Return the groups of a page as JSON data: the group with the newest query first, and in each
    group the newest query first. kept: ids of queries whose answer can still be read."""
    by_time = [sorted(group, key=_get_place, reverse=True) for group in groups]
    by_time.sort(key=lambda group: _get_place(group[0]), reverse=True)
    return [
        {
            "queries": len(group),
            "no_hits": sum(not one.hit for one in group),
            "first": format_day(group[-1].day),
            "last": format_day(group[0].day),
            "answers": [
                _describe_answer(one, page.outcomes[one.query_id]) | {"kept": one.query_id in kept}
                for one in group
            ],
        }
        for group in by_time
    ]


def _get_place(answer: AnsweredQuery) -> AnswerPlace:
    return AnswerPlace(answer.answered, answer.query_id)


def _describe_answer(answer: AnsweredQuery, reported: Sequence[Outcome]) -> dict[str, Any]:
    return {
        "query_id": answer.query_id,
        "owner": answer.owner,
        "task": answer.task[:MAX_SHOWN_CHARACTERS],
        "answered_at": format_time(answer.answered),
        "hit": answer.hit,
        "probability": answer.probability,
        "skills": [{"skill_id": one.skill_id, "sent": one.sent} for one in answer.skills],
        "outcomes": [
            {
                "skill_id": one.skill_id,
                "outcome": one.kind.value,
                "reason": one.reason,
                "by": one.by.value,
            }
            for one in reported
        ],
    }
