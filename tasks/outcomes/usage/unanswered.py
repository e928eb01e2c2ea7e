"""What the library cannot do: queries without a skill that worked, grouped by likeness."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from search.scoring.cosine_scale import is_default_model
from skills.outcomes.model import AnsweredQuery
from tasks.outcomes.protocol import OutcomeStore
from tasks.outcomes.usage.likeness import MAX_TASKS, group_tasks
from tasks.outcomes.usage.model import Usage

_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """Unanswered queries that are alike.

    queries: how many; no_hits: those of them that got no skill at all; first, last: the days of the
    earliest and the latest. examples: the most typical query, and the next ones.
    """

    queries: int
    no_hits: int
    first: int
    last: int
    examples: tuple[AnsweredQuery, ...]


@dataclass(frozen=True, slots=True)
class UnansweredQueries:
    """Groups of unanswered queries, largest first.

    total: number of unanswered queries, exact. grouped: those of them whose texts are stored and
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
    vectors = _read_vectors(outcomes, [one.query_id for one in answers], model)
    groups = group_tasks([one.task for one in answers], vectors)
    found = tuple(_describe([answers[place] for place in group]) for group in groups)
    return UnansweredQueries(total, len(answers), found)


def _read_newest(
    outcomes: OutcomeStore, days: Sequence[Usage], owner: str | None
) -> list[AnsweredQuery]:
    """Unanswered queries whose rows are stored, newest day first, of each day by id."""
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


def _read_vectors(
    outcomes: OutcomeStore, query_ids: Sequence[str], model: str
) -> npt.NDArray[np.float32] | None:
    """The vectors of queries, zeros for one that has none; None for another encoder than the
    default one, whose cosines are on another scale."""
    if not is_default_model(model):
        return None
    found = outcomes.get_vectors(model, query_ids)
    if not found:
        return None
    rows = np.zeros((len(query_ids), len(next(iter(found.values())).values)), dtype=np.float32)
    for place, query_id in enumerate(query_ids):
        if query_id in found:
            rows[place] = found[query_id].values
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))


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
