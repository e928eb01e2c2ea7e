"""The journal's SQLite file: schema, migrations, reads and transactions."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from config.errors import PermanentError, TransientError

SCHEMA_VERSION = 2

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (schema_version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (
    number INTEGER PRIMARY KEY,
    source TEXT NOT NULL,
    id TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('event', 'query')),
    payload TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'accepted'
        CHECK (state IN ('accepted', 'done', 'failed', 'cancelled')),
    outcome TEXT,
    reason TEXT NOT NULL DEFAULT '',
    accepted REAL NOT NULL,
    expires REAL,
    finished REAL,
    owed INTEGER NOT NULL DEFAULT 0,
    UNIQUE (source, id)
);
CREATE INDEX IF NOT EXISTS jobs_open ON jobs (kind, number) WHERE state = 'accepted';
CREATE INDEX IF NOT EXISTS jobs_id ON jobs (id);
CREATE TABLE IF NOT EXISTS letters (
    id TEXT PRIMARY KEY,
    task TEXT NOT NULL,
    ids TEXT NOT NULL,
    reason TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    trace_id TEXT NOT NULL,
    body TEXT NOT NULL,
    buried REAL NOT NULL
) WITHOUT ROWID;
"""

_LATER_INDEXES = (
    "CREATE INDEX IF NOT EXISTS jobs_owed ON jobs (finished) WHERE owed AND state != 'accepted'",
    "CREATE INDEX IF NOT EXISTS jobs_failed ON jobs (number) WHERE state = 'failed'",
)

_FROM_1 = (
    "DROP INDEX IF EXISTS jobs_open",
    "DROP INDEX IF EXISTS jobs_id",
    "ALTER TABLE jobs RENAME TO jobs_1",
    *(statement for statement in _SCHEMA.split(";") if statement.strip()),
    "INSERT INTO jobs SELECT *, 0 FROM jobs_1",
    "DROP TABLE jobs_1",
)
"""Schema 1 had no queue for replies and no state `cancelled`."""


def _create_private_file(path: Path | str) -> None:
    """Create an empty file that only its owner can read, since it will hold queries.

    SQLite gives its auxiliary files the same mode. Errors are ignored: opening the database
    reports them.
    """
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


class JournalDatabase:
    """A connection to the journal's file, shared by the threads of a process.

    Raises TransientError when another process keeps the file locked, PermanentError when it is
    damaged, cannot be opened or has another schema.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = path
        self.lock = threading.RLock()
        if path != ":memory:":
            _create_private_file(path)
        try:
            self.connection = sqlite3.connect(
                str(path), timeout=10, check_same_thread=False, isolation_level=None
            )
            self.connection.execute("PRAGMA journal_mode=WAL")
            self.connection.executescript(_SCHEMA)
            version = self._migrate()
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise TransientError(f"{path}: another process keeps the journal locked") from error
            raise PermanentError(
                f"{path}: the journal cannot be opened ({error}); move it away to start anew, "
                "the library itself is not in it"
            ) from error
        if version != SCHEMA_VERSION:
            self.connection.close()
            raise PermanentError(
                f"{path}: journal of schema {version}, this skillbus reads {SCHEMA_VERSION}; "
                "use the version that wrote it, or another SKILLBUS_HOME"
            )

    def _migrate(self) -> int:
        """Bring an older schema up to date, in one process at a time; returns the file's schema."""
        self.connection.execute("BEGIN IMMEDIATE")
        row = self.connection.execute("SELECT schema_version FROM meta").fetchone()
        version = int(row[0]) if row else SCHEMA_VERSION
        if row is None:
            self.connection.execute("INSERT INTO meta VALUES (?)", (SCHEMA_VERSION,))
        elif version == 1:
            for statement in _FROM_1:
                self.connection.execute(statement)
            self.connection.execute("UPDATE meta SET schema_version = ?", (SCHEMA_VERSION,))
            version = SCHEMA_VERSION
        if version == SCHEMA_VERSION:
            for statement in _LATER_INDEXES:
                self.connection.execute(statement)
        self.connection.execute("COMMIT")
        return version

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection for one read, locked against other threads.

        Raises TransientError for a locked file, PermanentError for a damaged one.
        """
        with self.lock:
            try:
                yield self.connection
            except sqlite3.OperationalError as error:
                raise TransientError(f"the journal cannot be read: {error}") from error
            except sqlite3.DatabaseError as error:
                raise self._damaged(error) from error

    @contextmanager
    def transaction(self, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """The connection for one write, rolled back on any error; raises as `reading` does.

        durable: wait for the disk; otherwise the write survives a kill of the process only.
        """
        with self.lock:
            try:
                self.connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
                self.connection.execute("BEGIN IMMEDIATE")
                yield self.connection
                self.connection.execute("COMMIT")
            except sqlite3.DatabaseError as error:
                self._roll_back()
                if isinstance(error, sqlite3.OperationalError):
                    raise TransientError(f"the journal cannot be written: {error}") from error
                raise self._damaged(error) from error
            except BaseException:
                self._roll_back()
                raise

    def _roll_back(self) -> None:
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def _damaged(self, error: sqlite3.DatabaseError) -> PermanentError:
        return PermanentError(
            f"{self._path}: the journal is damaged ({error}); move it away to start anew, "
            "the library itself is not in it"
        )

    def close(self) -> None:
        """Release the file."""
        with self.lock:
            self.connection.close()
