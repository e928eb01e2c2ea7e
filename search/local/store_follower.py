"""In-memory copies of parts of the store that follow its commits."""

from __future__ import annotations

import sqlite3
import threading
from abc import ABC, abstractmethod

from search.local.revision_store import RevisionStore


class StoreFollower(ABC):
    """A part of the store in memory, loaded at first use and extended by `refresh`.

    Several threads may read it while one refreshes.
    """

    def __init__(self, store: RevisionStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._version = -1

    def refresh(self) -> None:
        """Load what was committed since the last call; cheap if nothing was."""
        with self._lock:
            version = self._store.data_version()
            if version != self._version:
                self._load_changes()
                self._version = version

    def _load_changes(self) -> None:
        with self._store.read_connection() as connection:
            connection.execute("BEGIN")  # all reads see one commit
            try:
                self._read(connection)
            finally:
                connection.execute("COMMIT")

    @abstractmethod
    def _read(self, connection: sqlite3.Connection) -> None:
        """Read what was committed since the last call, within a transaction."""
