"""Past tasks in the memory of this process, updated from the changes of the store of outcomes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from config.learning_settings import LearningSettings
from search.protocol import Encoder, Vector
from search.scoring.cosine_scale import measure_task_scale
from search.scoring.memory_evidence import OwnerRules, SkillEvidence
from search.scoring.past_task_rows import Int8Vector, weigh_words
from search.scoring.task_memory import NOTHING_REMEMBERED, PastTask, TaskMemory
from search.text.query_understanding import Understanding, understand
from skills.outcomes.labels import settle_labels
from skills.outcomes.weights import TRUSTED_OWNERS
from tasks.outcomes.protocol import OutcomeStore


class PastTasks:
    """The newest past tasks that have outcomes; thread-safe.

    What is recalled is a function of what the store holds: each recall first reads what changed.
    get_encoder: asked once there are past tasks, since loading a model takes time.
    """

    def __init__(
        self, store: OutcomeStore, get_encoder: Callable[[], Encoder], settings: LearningSettings
    ) -> None:
        self._store = store
        self._get_encoder = get_encoder
        self._settings = settings
        self._lock = threading.Lock()
        self._start()

    def _start(self) -> None:
        self._memory: TaskMemory | None = None
        self._epoch = 0
        self._has_dropped = False

    def recall(
        self, understanding: Understanding, vector: Vector | None
    ) -> Mapping[str, SkillEvidence]:
        """What past tasks near this one say about skills, by skill.

        Costs a read of the changes, and one of the contributors if there are past tasks. Raises
        TransientError if the store does not answer.
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
                self._store.list_contributors(),
            )
            return self._memory.recall(weigh_words(understanding), vector, rules)

    def _follow(self) -> None:
        """Apply the changes of the store since the last time."""
        while True:
            changes = self._store.get_changes(self._epoch)
            if changes.query_ids and not self._apply(changes.query_ids):
                # Older tasks come back for those that are gone; which, only the store knows.
                self._start()
                continue
            self._epoch = changes.epoch
            if not changes.more:
                return

    def _apply(self, query_ids: Sequence[str]) -> bool:
        """Whether the memory holds the newest tasks after these have changed."""
        encoder = self._get_encoder()
        if self._memory is None:
            scale = measure_task_scale(encoder)
            self._memory = TaskMemory(encoder.dimension, scale.cosines, scale.centre)
        memory = self._memory
        before = {query_id: memory.get_day(query_id) for query_id in query_ids}
        memory.remove(query_ids)
        memory.add(self._read_tasks(query_ids, encoder.model))
        if self._has_dropped and any(
            day is not None and (memory.get_day(query_id) or 0) < day
            for query_id, day in before.items()
        ):
            return False
        surplus = len(memory) - self._settings.past_tasks
        if surplus > 0:
            memory.remove(memory.list_oldest(surplus))
            self._has_dropped = True
        return True

    def _read_tasks(self, query_ids: Sequence[str], model: str) -> Iterator[PastTask]:
        """The tasks that have labels; those without a vector of this model by their words."""
        outcomes = self._store.get_outcomes(query_ids)
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
