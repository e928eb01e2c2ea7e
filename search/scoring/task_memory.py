"""Memory of past tasks: skills that helped, or were rejected, in tasks near a new task.

Nothing is learned about a skill alone, since a popular skill is not a relevant one: a label counts
by the nearness of its task. All results depend only on the set of past tasks in memory, not on the
order of additions or on removed tasks.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np

from search.protocol import Vector
from search.scoring.cosine_scale import CosineScale
from search.scoring.memory_evidence import (
    MemoryWeights,
    NearTask,
    OwnerRules,
    SkillEvidence,
    weigh_evidence,
)
from search.scoring.past_task_rows import (
    COMPARED_ROWS,
    Floats,
    Int8Vector,
    PastTaskRows,
    Rows,
    TaskWords,
    to_int8,
)
from skills.outcomes.labels import SkillLabel

_WIDEN = 4
"""Factor on the number of compared rows when too few of them count."""

NOTHING_REMEMBERED: Mapping[str, SkillEvidence] = {}


@dataclass(frozen=True, slots=True)
class PastTask:
    """A past task. content: its vector by the present encoder, or its words if it has none.
    labels: at least one."""

    task_id: str
    content: Int8Vector | TaskWords
    labels: tuple[SkillLabel, ...]

    @property
    def day(self) -> int:
        """Day of the newest label."""
        return max(label.day for label in self.labels)


class _Kept(NamedTuple):
    """A past task whose content is in the rows."""

    task_id: str
    day: int
    labels: tuple[SkillLabel, ...]


class TaskMemory:
    """Past tasks in memory, found by their vectors, or by their words if they have no vector.

    scale: of the cosines of unrelated tasks. Not thread-safe.
    """

    def __init__(
        self,
        dimension: int,
        scale: CosineScale,
        centre: Vector | None = None,
        weights: MemoryWeights | None = None,
    ) -> None:
        self._scale = scale
        self._weights = weights or MemoryWeights()
        self._rows = PastTaskRows(dimension, centre)
        self._places: dict[str, int] = {}
        self._tasks: dict[int, _Kept] = {}
        self._order: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, task_id: str) -> bool:
        return task_id in self._places

    def get_day(self, task_id: str) -> int | None:
        """Return the day of a task, None if it is not in memory."""
        row = self._places.get(task_id)
        return None if row is None else self._tasks[row].day

    def list_oldest(self, count: int) -> list[str]:
        """Return the ids of the `count` oldest tasks by day, ties by id."""
        return [task_id for _, task_id in self._order[:count]]

    def add(self, tasks: Iterable[PastTask]) -> None:
        """Add tasks, each in place of an earlier one of the same id."""
        for task in tasks:
            self.remove([task.task_id])
            row = self._rows.add(task.content)
            self._places[task.task_id] = row
            self._tasks[row] = _Kept(task.task_id, task.day, task.labels)
            insort(self._order, (task.day, task.task_id))

    def remove(self, task_ids: Iterable[str]) -> None:
        """Remove tasks; unknown ones are left out."""
        for task_id in task_ids:
            row = self._places.pop(task_id, None)
            if row is None:
                continue
            task = self._tasks.pop(row)
            del self._order[bisect_left(self._order, (task.day, task.task_id))]
            self._rows.remove(row)
        if self._rows.is_sparse:
            rows = list(self._tasks)
            self._rows, places = self._rows.rebuild(rows)
            self._tasks = {place: self._tasks[row] for place, row in zip(places, rows, strict=True)}
            self._places = {task.task_id: place for place, task in self._tasks.items()}

    def recall(
        self, words: TaskWords, vector: Vector | None, rules: OwnerRules
    ) -> Mapping[str, SkillEvidence]:
        """Return the evidence about skills from tasks near this one, by skill.

        vector: of the task, (dimension,), None if its cosines mean nothing, so that words alone
        count.
        """
        if not self._places:
            return NOTHING_REMEMBERED
        near = self._iterate_near(words, None if vector is None else to_int8(vector))
        return weigh_evidence(near, lambda: self._find_newest_day(rules), rules, self._weights)

    def _find_newest_day(self, rules: OwnerRules) -> int:
        """Return the day of the newest task with a label of the sources that count."""
        if rules.sources is None:
            return self._order[-1][0]
        newest = -1
        for day, task_id in reversed(self._order):
            if day <= newest:
                break
            labels = self._tasks[self._places[task_id]].labels
            newest = max([newest, *(label.day for label in labels if rules.is_about(label))])
        return newest

    def _iterate_near(self, words: TaskWords, vector: Int8Vector | None) -> Iterator[NearTask]:
        """Yield near tasks lazily, nearest first, ties by id."""
        weights = self._weights
        by_words = self._rows.find_sharing_words(words)
        shared = by_words.similarities
        nearness = weights.count_repeated(weights.nearness_of_words(shared), shared)
        found = self._sort(by_words.rows, nearness)
        if vector is None:
            return found
        return heapq.merge(self._iterate_near_vector(vector), found, key=_by_nearness)

    def _iterate_near_vector(self, vector: Int8Vector) -> Iterator[NearTask]:
        """Yield near tasks with a vector. The first rows compared suffice, unless owners have used
        up their share of them."""
        count, seen = COMPARED_ROWS, np.empty(0, dtype=np.intp)
        while True:
            compared = self._rows.find_near_vector(vector, count)
            deviations = (compared.similarities - self._scale.mean) / self._scale.spread
            nearness = self._weights.nearness(deviations)
            nearness = self._weights.count_repeated(nearness, compared.similarities)
            rows = compared.rows
            if len(seen):
                fresh = ~np.isin(rows, seen)
                rows, nearness = rows[fresh], nearness[fresh]
            yield from self._sort(rows, nearness)
            if len(compared.rows) == self._rows.vectors or not nearness.all():
                return
            count, seen = len(compared.rows) * _WIDEN, compared.rows

    def _sort(self, rows: Rows, nearness: Floats) -> Iterator[NearTask]:
        """Yield the tasks of these rows whose nearness is not 0, nearest first, ties by id."""
        rows, nearness = rows[nearness > 0], nearness[nearness > 0]
        order = np.argsort(-nearness, kind="stable")
        tied = groupby(order.tolist(), key=lambda place: float(nearness[place]))
        for value, places in tied:
            tasks = [self._tasks[int(rows[place])] for place in places]
            for task in sorted(tasks, key=lambda task: task.task_id):
                yield NearTask(task.task_id, value, task.labels)


def _by_nearness(task: NearTask) -> tuple[float, str]:
    return -task.nearness, task.task_id
