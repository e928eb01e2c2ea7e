"""LRU cache of adjacency rows, invalidated by the change feed."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from graph.records import Adjacency, CatalogChanges
from skills.lru_cache import LRUCache

CACHED_ROWS = 8_192
"""Maximum skills whose links a process caches, about 4 kB each."""


class AdjacencyCache:
    """Cache of the most recently used rows, at most `max_rows`; changed rows are evicted.

    A row is never older than the last applied changes. Safe to share among threads.
    """

    def __init__(self, max_rows: int) -> None:
        self._lock = threading.Lock()
        self._rows: LRUCache[tuple[str, int], Adjacency] = LRUCache(max_rows)
        self._fan_outs: set[int] = set()
        self._epoch = 0
        self._version = 0

    @property
    def epoch(self) -> int:
        """The epoch of the last applied changes."""
        return self._epoch

    def get_many(self, skill_ids: Sequence[str], fan_out: int) -> tuple[dict[str, Adjacency], int]:
        """Return cached rows of this fan-out, and the version to pass to `put_many`."""
        with self._lock:
            found = self._rows.get((skill_id, fan_out) for skill_id in skill_ids)
            return {skill_id: row for (skill_id, _), row in found.items()}, self._version

    def put_many(self, rows: Mapping[str, Adjacency], fan_out: int, version: int) -> None:
        """Add rows read since `get_many` returned `version`, unless any row was evicted since."""
        with self._lock:
            if version != self._version:
                return
            self._fan_outs.add(fan_out)
            for skill_id, row in rows.items():
                self._rows.put((skill_id, fan_out), row)

    def apply_changes(self, since: int, changes: CatalogChanges) -> None:
        """Evict rows changed after the epoch `since`; all rows if earlier changes were missed."""
        with self._lock:
            if since > self._epoch:
                self._rows.clear()
                self._version += 1
            self._epoch = max(self._epoch, changes.epoch)
            self._drop(changes.relinked)
            self._drop(changes.pointers)

    def evict(self, skill_ids: Iterable[str]) -> None:
        """Evict these rows after this process has changed them."""
        with self._lock:
            self._drop(skill_ids)

    def _drop(self, skill_ids: Iterable[str]) -> None:
        gone = list(skill_ids)
        self._version += bool(gone)
        self._rows.evict(product(gone, self._fan_outs))
