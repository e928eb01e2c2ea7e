"""Skills whose embedding failed permanently, for commands that wait until all are embedded."""

from __future__ import annotations

import time
from contextlib import ExitStack

from config.settings import Settings
from graph.protocol import Catalog
from tasks.journal.protocol import MAX_DEAD_LETTERS, Journal
from tasks.policies import EMBED_SKILLS, TaskPolicy

_FRESH_SECONDS = 1.0


class FailedEmbeddings:
    """Counts the published skills without vectors whose embedding failed permanently.

    stack: closes the journal, which is opened with the first count. A count is up to a second old.
    """

    def __init__(self, settings: Settings, graph: Catalog, stack: ExitStack) -> None:
        self._settings = settings
        self._graph = graph
        self._stack = stack
        self._journal: Journal | None = None
        self._counts: dict[str, tuple[float, int]] = {}

    def count(self, task: TaskPolicy) -> int:
        """Return the number of skills. task: EMBED_SKILLS or EMBED_SECTIONS."""
        read_at, count = self._counts.get(task.name, (-_FRESH_SECONDS, 0))
        if time.monotonic() - read_at >= _FRESH_SECONDS:
            count = self._read(task)
            self._counts[task.name] = time.monotonic(), count
        return count

    def _read(self, task: TaskPolicy) -> int:
        letters = self._open_journal().list_dead_letters(MAX_DEAD_LETTERS)
        failed = {one.ids[0]: one.failed_at for one in letters if one.task == task.name and one.ids}
        if not failed:
            return 0
        graph = self._graph
        most = graph.get_counts()["published"]
        if task == EMBED_SKILLS:
            keys = graph.list_awaiting_vectors(most)
        else:
            keys = graph.list_awaiting_embedding(most)
        awaiting = {key.skill_id for key in keys}
        entries = graph.get_entries(sorted(awaiting & failed.keys()))
        # A letter of an earlier revision says nothing about the present one.
        return sum(failed[entry.skill_id] >= entry.updated for entry in entries)

    def _open_journal(self) -> Journal:
        from workers.backend.stores import open_journal  # slow to import

        if self._journal is None:
            self._journal = open_journal(self._settings, self._stack, writable=True)
        return self._journal
