"""Where a reader of the change feed of outcomes stands, and when it must start anew."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from tasks.outcomes.protocol import KEPT_TOMBSTONE_SECONDS, OutcomeStore

_FULL_READ_SECONDS = KEPT_TOMBSTONE_SECONDS / 2
"""Half of it, since the clocks of the processes that forget and that read may differ."""


class ChangedQueries(NamedTuple):
    """Queries whose outcomes changed after the epoch `after` and up to `epoch`, each once.

    With `after` 0 they are all there are: what the reader holds of others is no longer true.
    """

    after: int
    epoch: int
    query_ids: tuple[str, ...]
    read_at: float


class ChangeReader:
    """Reads the changes of a store for one reader that keeps what it read; not thread-safe.

    It starts anew after a time without a read, since the feed forgets deleted queries, and where
    the store is another one than before, as its epoch shows. check_seconds: how often at most the
    store is asked for its epoch; 0 asks at each read. clock: seconds since 1970.
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
        """The next `read` is of all changes."""
        self.epoch = 0

    def read(self) -> ChangedQueries:
        """Return all changes since `epoch`; it moves with `finish`, so that what fails is read
        again.

        One read of the store where nothing changed, and one of its epoch when that is due. Raises
        TransientError if the store does not answer.
        """
        now, last = self._clock(), self.epoch
        if abs(now - self._checked_at) >= self._check_seconds:
            # Before the changes, so that all up to this epoch are among them.
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
        """The reader holds what these changes made."""
        self.epoch, self._read_at = changes.epoch, changes.read_at
