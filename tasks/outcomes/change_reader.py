"""Position of a reader in the change feed of outcomes, and its restart when the feed is
incomplete."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from tasks.outcomes.protocol import KEPT_TOMBSTONE_SECONDS, OutcomeStore

_FULL_READ_SECONDS = KEPT_TOMBSTONE_SECONDS / 2
"""Half of the time that tombstones are kept, since the clocks of forgetting and reading processes
may differ."""


class ChangedQueries(NamedTuple):
    """Queries whose outcomes changed after the epoch `after` and up to `epoch`, each once.

    With `after` 0 these are all queries with outcomes; the reader must drop what it holds of other
    queries.
    """

    after: int
    epoch: int
    query_ids: tuple[str, ...]
    read_at: float


class ChangeReader:
    """Reads the changes of a store for one reader that keeps what it read; not thread-safe.

    It starts anew after a long time without a read, since the feed forgets deleted queries, and if
    its epoch shows that the store was replaced. check_seconds: minimum time between reads of the
    store's epoch; 0 reads it each time. clock: seconds since 1970.
    """

    def __init__(
        self, store: OutcomeStore, check_seconds: float, clock: Callable[[], float] | None = None
    ) -> None:
        self._store = store
        self._check_seconds = check_seconds
        self._clock = clock or time.time
        self._checked_at = float("-inf")
        self._read_at = 0.0
        self.epoch = 0

    def start_anew(self) -> None:
        """Make the next `read` return all changes."""
        self.epoch = 0

    def read(self) -> ChangedQueries:
        """Return all changes since `epoch`. Only `finish` moves `epoch`, so that failed changes are
        read again.

        Costs one read of the store if nothing changed, and one read of its epoch when that is due.
        Raises TransientError if the store does not answer.
        """
        now, last = self._clock(), self.epoch
        if abs(now - self._checked_at) >= self._check_seconds:
            # Read before the changes, so that these include all changes up to this epoch.
            last = self._store.get_epoch()
            self._checked_at = now
        if last < self.epoch or now - self._read_at > _FULL_READ_SECONDS:
            self.start_anew()
        after, query_ids = self.epoch, dict[str, None]()
        changes = self._store.get_changes(after)
        while True:
            query_ids |= dict.fromkeys(changes.query_ids)
            if not changes.more:
                return ChangedQueries(after, max(changes.epoch, last), tuple(query_ids), now)
            changes = self._store.get_changes(changes.epoch)

    def finish(self, changes: ChangedQueries) -> None:
        """Record that the reader has processed these changes."""
        self.epoch, self._read_at = changes.epoch, changes.read_at
