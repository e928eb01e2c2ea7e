"""The journal: accepted events and queries with their outcome, in SQLite, before any task runs.

kombu's in-memory transport forgets on a kill, so what was acknowledged must be on disk first.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.errors import NotFoundError, PermanentError, TransientError
from skills.events import Event, parse_event

SCHEMA_VERSION = 1

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (schema_version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (
    number INTEGER PRIMARY KEY,
    source TEXT NOT NULL,
    id TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('event', 'query')),
    payload TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'accepted' CHECK (state IN ('accepted', 'done', 'failed')),
    outcome TEXT,
    reason TEXT NOT NULL DEFAULT '',
    accepted REAL NOT NULL,
    expires REAL,
    finished REAL,
    UNIQUE (source, id)
);
CREATE INDEX IF NOT EXISTS jobs_open ON jobs (kind, number) WHERE state = 'accepted';
CREATE INDEX IF NOT EXISTS jobs_id ON jobs (id);
"""


@dataclass(frozen=True, slots=True)
class Job:
    """An accepted event or query and what became of it."""

    id: str
    kind: str
    event: Event
    state: str
    outcome: dict[str, Any] | None
    reason: str
    accepted: float
    expires: float | None


class Journal:
    """Accepted jobs on disk. Thread-safe; `:memory:` keeps them for this process only."""

    def __init__(self, path: Path | str) -> None:
        self._lock = threading.RLock()
        self._path = path
        try:
            self._connection = sqlite3.connect(
                str(path), timeout=10, check_same_thread=False, isolation_level=None
            )
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.executescript(_SCHEMA)
            row = self._connection.execute("SELECT schema_version FROM meta").fetchone()
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise TransientError(f"{path}: another process keeps the journal locked") from error
            raise PermanentError(
                f"{path}: the journal cannot be opened ({error}); move it away to start anew, "
                "the library itself is not in it"
            ) from error
        if row is None:
            self._connection.execute("INSERT INTO meta VALUES (?)", (SCHEMA_VERSION,))
        elif row[0] != SCHEMA_VERSION:
            raise PermanentError(
                f"{path}: journal of schema {row[0]}, this skillbus reads {SCHEMA_VERSION}; "
                "use the version that wrote it, or another SKILLBUS_HOME"
            )

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """One read; raises PermanentError for a damaged file."""
        with self._lock:
            try:
                yield self._connection
            except sqlite3.OperationalError as error:
                raise TransientError(f"the journal cannot be read: {error}") from error
            except sqlite3.DatabaseError as error:
                raise self._damaged(error) from error

    def _damaged(self, error: sqlite3.DatabaseError) -> PermanentError:
        return PermanentError(
            f"{self._path}: the journal is damaged ({error}); move it away to start anew, "
            "the library itself is not in it"
        )

    @contextmanager
    def _transaction(self, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """One write; `durable` waits for the disk, any other survives a kill of the process."""
        with self._lock:
            try:
                self._connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
                self._connection.execute("COMMIT")
            except sqlite3.OperationalError as error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise TransientError(f"the journal cannot be written: {error}") from error
            except sqlite3.DatabaseError as error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise self._damaged(error) from error
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def accept(self, event: Event, kind: str, expires: float | None = None) -> bool:
        """Record a job durably; False when (source, id) was accepted before."""
        with self._transaction(durable=True) as connection:
            cursor = connection.execute(
                "INSERT OR IGNORE INTO jobs (source, id, kind, payload, accepted, expires) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (event.source, event.id, kind, event.model_dump_json(), time.time(), expires),
            )
            return cursor.rowcount == 1

    def finish(self, job_id: str, outcome: dict[str, Any] | None = None) -> None:
        """Record success, once; a job that has ended is left as it is."""
        self._end(job_id, "done", outcome, "")

    def fail(self, job_id: str, reason: str) -> None:
        """Record failure with its reason, once."""
        self._end(job_id, "failed", None, reason)

    def _end(self, job_id: str, state: str, outcome: dict[str, Any] | None, reason: str) -> None:
        text = None if outcome is None else json.dumps(outcome, ensure_ascii=False)
        with self._transaction() as connection:
            connection.execute(
                "UPDATE jobs SET state = ?, outcome = ?, reason = ?, finished = ? "
                "WHERE id = ? AND state = 'accepted'",
                (state, text, reason, time.time(), job_id),
            )

    def job(self, job_id: str) -> Job:
        """One job; raises NotFoundError when there is none of this id."""
        with self._reading() as connection:
            row = connection.execute(
                "SELECT id, kind, payload, state, outcome, reason, accepted, expires "
                "FROM jobs WHERE id = ?",
                (job_id,),
            ).fetchone()
        if row is None:
            raise NotFoundError(f"no event or query with id {job_id!r}")
        return Job(
            row[0],
            row[1],
            parse_event(row[2]),
            row[3],
            None if row[4] is None else json.loads(row[4]),
            row[5],
            row[6],
            row[7],
        )

    def open_jobs(self, kind: str, limit: int = 10_000) -> list[str]:
        """Ids of jobs that have not ended, oldest first."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT id FROM jobs WHERE kind = ? AND state = 'accepted' ORDER BY number LIMIT ?",
                (kind, limit),
            ).fetchall()
        return [row[0] for row in rows]

    def states(self, job_ids: Sequence[str]) -> dict[str, tuple[str, str]]:
        """State and reason of each job that is known."""
        found = {}
        with self._reading() as connection:
            for job_id in job_ids:
                row = connection.execute(
                    "SELECT state, reason FROM jobs WHERE id = ?", (job_id,)
                ).fetchone()
                if row is not None:
                    found[job_id] = (row[0], row[1])
        return found

    def failures(self, limit: int = 100) -> list[Job]:
        """Jobs that failed, newest first."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT id FROM jobs WHERE state = 'failed' ORDER BY number DESC LIMIT ?", (limit,)
            ).fetchall()
        return [self.job(row[0]) for row in rows]

    def forget(self, kind: str, before: float) -> int:
        """Drop jobs of a kind that ended before this time (seconds since the epoch); how many."""
        with self._transaction() as connection:
            return connection.execute(
                "DELETE FROM jobs WHERE kind = ? AND state != 'accepted' AND finished < ?",
                (kind, before),
            ).rowcount

    def close(self) -> None:
        """Release the file."""
        with self._lock:
            self._connection.close()
