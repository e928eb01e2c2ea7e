"""Unanswered queries: queries without a skill that worked, grouped by similarity."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from skills.outcomes.model import AnsweredQuery
from tasks.outcomes.protocol import OutcomeStore
from tasks.outcomes.usage.answer_groups import group_answers
from tasks.outcomes.usage.model import Usage
from tasks.outcomes.usage.task_groups import MAX_TASKS

_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """Similar unanswered queries.

    queries: number of queries; no_hits: number of these that got no skill at all; first, last: days
    of the earliest and the latest. examples: the most typical queries, best first.
    """

    queries: int
    no_hits: int
    first: int
    last: int
    examples: tuple[AnsweredQuery, ...]


@dataclass(frozen=True, slots=True)
class UnansweredQueries:
    """Groups of unanswered queries, largest first.

    total: number of unanswered queries, exact. grouped: number of these whose texts are stored and
    were compared: the newest MAX_TASKS of a sample.
    """

    total: int
    grouped: int
    groups: tuple[TaskGroup, ...]


def find_unanswered(
    outcomes: OutcomeStore, days: Sequence[Usage], owner: str | None, model: str
) -> UnansweredQueries:
    """Group the unanswered queries of an owner, or of all (None).

    days: usage by day, oldest first. model: name of the encoder whose vectors the store has.
    """
    total = sum(
        group.totals["unanswered"]
        for usage in days
        for (asker, _), group in usage.groups.items()
        if owner in (None, asker)
    )
    answers = _read_newest(outcomes, days, owner)
    groups = group_answers(outcomes, answers, model)
    return UnansweredQueries(total, len(answers), tuple(map(_describe, groups)))


def _read_newest(
    outcomes: OutcomeStore, days: Sequence[Usage], owner: str | None
) -> list[AnsweredQuery]:
    """Return the unanswered queries whose rows are stored, newest day first, by id within a day."""
    found: list[AnsweredQuery] = []
    for usage in reversed(days):
        ids = sorted(
            query_id
            for asker, query_ids in usage.unanswered.items()
            if owner in (None, asker)
            for query_id in query_ids
        )
        found += outcomes.get_answers(ids[: MAX_TASKS - len(found)]).values()
        if len(found) >= MAX_TASKS:
            break
    return found


def _describe(answers: Sequence[AnsweredQuery]) -> TaskGroup:
    return TaskGroup(
        len(answers),
        sum(not one.hit for one in answers),
        min(_days(answers)),
        max(_days(answers)),
        tuple(answers[:_EXAMPLES]),
    )


def _days(answers: Iterable[AnsweredQuery]) -> list[int]:
    return [one.day for one in answers]
