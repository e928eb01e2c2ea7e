"""LRU cache of adjacency rows, invalidated by the change feed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

from graph.records import Adjacency, CatalogChanges

CACHED_ROWS = 8_192
"""Maximum skills whose links a process caches, about 4 kB each."""


class AdjacencyCache:
    """Cache of the most recently used rows, at most `max_rows`; changed rows are evicted.

    A row is never older than the last applied changes. Safe to share among threads.
    """

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._lock = threading.Lock()
        self._rows: OrderedDict[tuple[str, int], Adjacency] = OrderedDict()
        self._fan_outs: set[int] = set()
        self._epoch = 0
        self._version = 0

    @property
    def epoch(self) -> int:
        """The epoch of the last applied changes."""
        return self._epoch

    def get_many(self, skill_ids: Sequence[str], fan_out: int) -> tuple[dict[str, Adjacency], int]:
        """Return cached rows of this fan-out, and the version to pass to `put_many`."""
        found = {}
        with self._lock:
            for skill_id in skill_ids:
                row = self._rows.get((skill_id, fan_out))
                if row is not None:
                    self._rows.move_to_end((skill_id, fan_out))
                    found[skill_id] = row
            return found, self._version

    def put_many(self, rows: Mapping[str, Adjacency], fan_out: int, version: int) -> None:
        """Add rows read since `get_many` returned `version`, unless any row was evicted since."""
        with self._lock:
            if version != self._version:
                return
            self._fan_outs.add(fan_out)
            for skill_id, row in rows.items():
                self._rows[skill_id, fan_out] = row
                self._rows.move_to_end((skill_id, fan_out))
            while len(self._rows) > self._max_rows:
                self._rows.popitem(last=False)

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
        for fan_out in self._fan_outs:
            for skill_id in gone:
                self._rows.pop((skill_id, fan_out), None)
