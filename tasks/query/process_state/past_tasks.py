"""Past tasks in the memory of this process, updated from the changes of the store of outcomes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from config.learning_settings import LearningSettings
from search.protocol import Encoder, Vector
from search.scoring.cosine_scale import measure_task_scale
from search.scoring.memory_evidence import OwnerRules, SkillEvidence
from search.scoring.past_task_rows import Int8Vector, weigh_words
from search.scoring.task_memory import NOTHING_REMEMBERED, PastTask, TaskMemory
from search.text.query_understanding import Understanding, understand
from skills.batches import batches
from skills.outcomes.labels import settle_labels
from skills.outcomes.weights import TRUSTED_OWNERS
from tasks.outcomes.change_reader import ChangedQueries, ChangeReader
from tasks.outcomes.protocol import OutcomeStore

_BATCH_QUERIES = 10_000
_CHECK_SECONDS = 60.0
"""Minimum seconds between checks of whether the store was replaced."""


class PastTasks:
    """The newest past tasks with outcomes; thread-safe.

    Recalled evidence is a function of the store's content: each recall first reads its changes.
    get_encoder: called only if there are past tasks, since loading a model takes time. clock: see
    `ChangeReader`.
    """

    def __init__(
        self,
        store: OutcomeStore,
        get_encoder: Callable[[], Encoder],
        settings: LearningSettings,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._store = store
        self._get_encoder = get_encoder
        self._settings = settings
        self._lock = threading.Lock()
        self._changes = ChangeReader(store, _CHECK_SECONDS, clock)
        self._left_out: frozenset[str] = frozenset()
        self._empty()

    def _empty(self) -> None:
        self._memory: TaskMemory | None = None
        self._has_dropped = False
        self._contributors: Mapping[str, frozenset[str]] = {}
        self._contributions = 0

    def recall(
        self,
        understanding: Understanding,
        vector: Vector | None,
        sources: frozenset[str] | None = None,
    ) -> Mapping[str, SkillEvidence]:
        """Return the evidence of past tasks near this one about skills, by skill.

        sources: only evidence about their skills counts; None for all. Costs a read of the changes,
        and one of the number of contributors if there are past tasks. Raises TransientError if the
        store does not answer.
        """
        settings = self._settings
        if not settings.memory or not settings.past_tasks:
            return NOTHING_REMEMBERED
        with self._lock:
            self._follow()
            if self._memory is None or not len(self._memory):
                return NOTHING_REMEMBERED
            rules = OwnerRules(
                TRUSTED_OWNERS.union(settings.trusted_owners),
                settings.least_owners,
                settings.daily_tasks,
                self._read_contributors(),
                sources,
            )
            return self._memory.recall(weigh_words(understanding), vector, rules)

    def leave_out(self, query_ids: Collection[str]) -> None:
        """Exclude these queries until other queries are excluded, so that an evaluation does not
        measure skillbus on its own training data. Raises TransientError if the store does not
        answer."""
        with self._lock:
            self._follow()
            left_out = frozenset(query_ids)
            changed = sorted(self._left_out ^ left_out)
            self._left_out = left_out
            if changed and not self._replace(changed):
                self._changes.start_anew()
                self._follow()

    def load(self) -> None:
        """Read the past tasks now, as `recall` does, so that the first query need not.

        About 80 µs a task. Raises TransientError if the store does not answer.
        """
        if self._settings.memory and self._settings.past_tasks:
            with self._lock:
                self._follow()

    def _read_contributors(self) -> Mapping[str, frozenset[str]]:
        """Return owners by the source that they contributed to. Owners are never removed, so that
        an unchanged number means an unchanged content."""
        count = self._store.count_contributors()
        if count != self._contributions:
            self._contributors = self._store.list_contributors()
            self._contributions = sum(len(owners) for owners in self._contributors.values())
        return self._contributors

    def _follow(self) -> None:
        """Apply the changes of the store since the last time."""
        changes = self._changes.read()
        if not self._apply(changes):
            # Older tasks take the places of removed ones; only the store knows which.
            self._changes.start_anew()
            changes = self._changes.read()
            self._apply(changes)
        self._changes.finish(changes)

    def _apply(self, changes: ChangedQueries) -> bool:
        """Apply changes; return whether the memory holds the newest tasks afterwards."""
        if not changes.after:
            self._empty()
        return all(self._replace(batch) for batch in batches(changes.query_ids, _BATCH_QUERIES))

    def _replace(self, query_ids: Sequence[str]) -> bool:
        """Read these tasks again; return whether the memory holds the newest tasks afterwards."""
        encoder = self._get_encoder()
        tasks = list(self._read_tasks(query_ids, encoder.model))
        if self._memory is None:
            scale = measure_task_scale(encoder)
            self._memory = TaskMemory(encoder.dimension, scale.cosines, scale.centre)
        memory = self._memory
        before = {query_id: memory.get_day(query_id) for query_id in query_ids}
        memory.remove(query_ids)
        memory.add(tasks)
        if self._has_dropped and any(
            _is_older(memory.get_day(query_id), day) for query_id, day in before.items()
        ):
            return False
        surplus = len(memory) - self._settings.past_tasks
        if surplus > 0:
            memory.remove(memory.list_oldest(surplus))
            self._has_dropped = True
        return True

    def _read_tasks(self, query_ids: Sequence[str], model: str) -> Iterator[PastTask]:
        """Yield the tasks that have labels; tasks without a vector of this model have their
        words."""
        read = [one for one in query_ids if one not in self._left_out]
        outcomes = self._store.get_outcomes(read)
        vectors = self._store.get_vectors(model, list(outcomes))
        answers = self._store.get_answers([one for one in outcomes if one not in vectors])
        for query_id in sorted(outcomes):
            labels = settle_labels(outcomes[query_id])
            stored, answer = vectors.get(query_id), answers.get(query_id)
            if not labels:
                continue
            if stored is not None:
                yield PastTask(query_id, Int8Vector(stored.values, stored.scale), labels)
            elif answer is not None and answer.task.strip():
                yield PastTask(query_id, weigh_words(understand(answer.task)), labels)


def _is_older(day: int | None, before: int | None) -> bool:
    """Return whether a task that was in memory is gone, or of an earlier day."""
    return before is not None and (day is None or day < before)
