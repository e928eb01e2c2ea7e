"""The journal of the embedded deployment, in SQLite."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from config.errors import NotFoundError, PermanentError, TransientError
from skills.events import Event, parse_event
from tasks.journal import protocol
from tasks.journal.protocol import DeadLetter, Job, JobKind, job_id, wants_reply

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
"""Jobs of before named no queue for a reply, and none could be cancelled."""


def _make_private(path: Path | str) -> None:
    """Make an empty file for its owner alone: it will hold what was asked. SQLite gives the mode on
    to the files beside it, and says what is wrong where there can be none."""
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


class SqliteJournal:
    """Jobs and dead letters on disk. Thread-safe; `:memory:` keeps them for this process only."""

    def __init__(self, path: Path | str) -> None:
        self._lock = threading.RLock()
        self._owing = threading.Event()
        self._path = path
        self._stages: dict[str, list[str]] = {}
        if path != ":memory:":
            _make_private(path)
        try:
            self._connection = sqlite3.connect(
                str(path), timeout=10, check_same_thread=False, isolation_level=None
            )
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.executescript(_SCHEMA)
            version = self._migrated()
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise TransientError(f"{path}: another process keeps the journal locked") from error
            raise PermanentError(
                f"{path}: the journal cannot be opened ({error}); move it away to start anew, "
                "the library itself is not in it"
            ) from error
        if version != SCHEMA_VERSION:
            self._connection.close()
            raise PermanentError(
                f"{path}: journal of schema {version}, this skillbus reads {SCHEMA_VERSION}; "
                "use the version that wrote it, or another SKILLBUS_HOME"
            )

    def _migrated(self) -> int:
        """The schema of the file, after bringing an older one up to date; one process does it."""
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        row = connection.execute("SELECT schema_version FROM meta").fetchone()
        version = int(row[0]) if row else SCHEMA_VERSION
        if row is None:
            connection.execute("INSERT INTO meta VALUES (?)", (SCHEMA_VERSION,))
        elif version == 1:
            for statement in _FROM_1:
                connection.execute(statement)
            connection.execute("UPDATE meta SET schema_version = ?", (SCHEMA_VERSION,))
            version = SCHEMA_VERSION
        if version == SCHEMA_VERSION:
            for statement in _LATER_INDEXES:
                connection.execute(statement)
        connection.execute("COMMIT")
        return version

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

    def add_job(self, event: Event, kind: JobKind, ttl_seconds: float | None = None) -> bool:
        """Record a job durably; False when it was accepted before."""
        now = time.time()
        expires = None if ttl_seconds is None else now + ttl_seconds
        with self._transaction(durable=True) as connection:
            cursor = connection.execute(
                "INSERT OR IGNORE INTO jobs (source, id, kind, payload, accepted, expires, owed) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    event.source,
                    job_id(event),
                    kind,
                    event.model_dump_json(),
                    now,
                    expires,
                    int(wants_reply(event)),
                ),
            )
            return cursor.rowcount == 1

    def finish_job(self, job_id: str, outcome: dict[str, Any] | None = None) -> None:
        """Record success, once; a job that has ended is left as it is."""
        self._end(job_id, "done", outcome, "")

    def fail_job(self, job_id: str, reason: str) -> None:
        """Record failure with its reason, once."""
        self._end(job_id, "failed", None, reason)

    def cancel_job(self, job_id: str) -> bool:
        """Have an open job not worked on any further; False when it has ended or is unknown."""
        return self._end(job_id, "cancelled", None, "")

    def _end(self, job_id: str, state: str, outcome: dict[str, Any] | None, reason: str) -> bool:
        text = None if outcome is None else json.dumps(outcome, ensure_ascii=False)
        with self._transaction() as connection:
            ended = connection.execute(
                "UPDATE jobs SET state = ?, outcome = ?, reason = ?, finished = ? "
                "WHERE id = ? AND state = 'accepted' RETURNING owed",
                (state, text, reason, time.time(), job_id),
            ).fetchall()
            self._stages.pop(job_id, None)
        if (1,) in ended:
            self._owing.set()
        return bool(ended)

    def start_stage(self, job_id: str, stage: str) -> bool:
        """Note a stage, in this process: it alone works on jobs."""
        with self._reading() as connection:
            row = connection.execute("SELECT state FROM jobs WHERE id = ?", (job_id,)).fetchone()
            if row != ("accepted",):
                return False
            self._stages.setdefault(job_id, []).append(stage)
            return True

    def list_stages(self, job_id: str) -> list[str]:
        """The stages that work on an open job has come to, in order."""
        with self._lock:
            return list(self._stages.get(job_id, ()))

    def reopen_jobs(self, job_ids: Sequence[str]) -> None:
        """Have failed jobs worked on again."""
        with self._transaction(durable=True) as connection:
            connection.executemany(
                "UPDATE jobs SET state = 'accepted', reason = '', finished = NULL "
                "WHERE id = ? AND state = 'failed'",
                [(one,) for one in job_ids],
            )

    def get_job(self, job_id: str) -> Job:
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
            None if row[7] is None else row[7] - time.time(),
        )

    def list_open_jobs(self, kind: JobKind, limit: int = 10_000) -> list[str]:
        """Ids of jobs that have not ended, oldest first."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT id FROM jobs WHERE kind = ? AND state = 'accepted' ORDER BY number LIMIT ?",
                (kind, limit),
            ).fetchall()
        return [row[0] for row in rows]

    def count_open_jobs(self, kind: JobKind) -> int:
        """How many jobs have not ended."""
        return int(self._aggregate("count(*)", kind))

    def get_oldest_job_age(self, kind: JobKind) -> float:
        """Seconds since the oldest job that has not ended was accepted."""
        oldest = self._aggregate("min(accepted)", kind)
        return 0.0 if oldest is None else max(0.0, time.time() - float(oldest))

    def _aggregate(self, what: str, kind: JobKind) -> Any:
        statement = f"SELECT {what} FROM jobs WHERE kind = ? AND state = 'accepted'"  # noqa: S608 - one of two constants
        with self._reading() as connection:
            return connection.execute(statement, (kind,)).fetchone()[0]

    def get_job_states(self, job_ids: Sequence[str]) -> dict[str, tuple[str, str]]:
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

    def list_failed_jobs(self, limit: int = 100) -> list[Job]:
        """Jobs that failed, newest first."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT id FROM jobs WHERE state = 'failed' ORDER BY number DESC LIMIT ?", (limit,)
            ).fetchall()
        return [self.get_job(row[0]) for row in rows]

    def delete_ended_jobs(self, kind: JobKind, age_seconds: float) -> int:
        """Drop jobs of a kind that ended more than `age` seconds ago; how many."""
        with self._transaction() as connection:
            return connection.execute(
                "DELETE FROM jobs WHERE kind = ? AND state != 'accepted' AND finished < ?",
                (kind, time.time() - age_seconds),
            ).rowcount

    def list_pending_replies(self, limit: int = 100) -> list[str]:
        """The outbox: jobs that have ended and whose sender waits for a reply."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT id FROM jobs WHERE owed AND state != 'accepted' ORDER BY finished LIMIT ?",
                (limit,),
            ).fetchall()
        return [row[0] for row in rows]

    def mark_replied(self, job_id: str) -> None:
        """The reply to a job was sent."""
        with self._transaction() as connection:
            connection.execute("UPDATE jobs SET owed = 0 WHERE id = ?", (job_id,))

    def wait_for_pending_reply(self, seconds: float) -> None:
        """Wait until a job of this process comes into the outbox, at most `seconds`."""
        self._owing.wait(seconds)
        self._owing.clear()

    def add_dead_letter(self, letter: DeadLetter) -> None:
        """Keep a dead letter; the oldest of too many make room."""
        with self._transaction(durable=True) as connection:
            connection.execute(
                "INSERT OR REPLACE INTO letters VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    letter.id,
                    letter.task,
                    json.dumps(letter.ids, ensure_ascii=False),
                    letter.reason,
                    letter.attempts,
                    letter.trace_id,
                    letter.body,
                    letter.buried,
                ),
            )
            connection.execute(
                "DELETE FROM letters WHERE id IN "
                "(SELECT id FROM letters ORDER BY id DESC LIMIT -1 OFFSET ?)",
                (protocol.MAX_DEAD_LETTERS,),
            )

    def list_dead_letters(self, limit: int = 100) -> list[DeadLetter]:
        """Dead letters, newest first."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT * FROM letters ORDER BY id DESC LIMIT ?", (limit,)
            ).fetchall()
        return [_letter(row) for row in rows]

    def get_dead_letter(self, letter_id: str) -> DeadLetter:
        """One dead letter; raises NotFoundError when there is none of this id."""
        with self._reading() as connection:
            row = connection.execute("SELECT * FROM letters WHERE id = ?", (letter_id,)).fetchone()
        if row is None:
            raise NotFoundError(f"no dead letter {letter_id!r}; `skillbus dead list` names them")
        return _letter(row)

    def count_dead_letters(self) -> int:
        """How many dead letters there are."""
        with self._reading() as connection:
            return int(connection.execute("SELECT count(*) FROM letters").fetchone()[0])

    def delete_dead_letter(self, letter_id: str) -> bool:
        """Drop a dead letter; False when it is gone already."""
        with self._transaction() as connection:
            deleted = connection.execute("DELETE FROM letters WHERE id = ?", (letter_id,))
            return deleted.rowcount == 1

    def close(self) -> None:
        """Release the file."""
        with self._lock:
            self._connection.close()


def _letter(row: tuple[Any, ...]) -> DeadLetter:
    return DeadLetter(row[0], row[1], tuple(json.loads(row[2])), *row[3:])
