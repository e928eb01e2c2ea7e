"""The journal's SQLite file: schema and migrations."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from config.errors import PermanentError, TransientError
from tasks.sqlite_file import SqliteFile, choose_advice, is_busy

SCHEMA_VERSION = 3

_ADVICE = "move it away to start anew, the library itself is not in it"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (schema_version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (
    number INTEGER PRIMARY KEY,
    source TEXT NOT NULL,
    id TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('event', 'query', 'outcome')),
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
CREATE TABLE IF NOT EXISTS runs (
    number INTEGER PRIMARY KEY,
    trace_id TEXT NOT NULL,
    task TEXT NOT NULL,
    started REAL NOT NULL,
    ended REAL NOT NULL,
    outcome TEXT NOT NULL,
    items INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    error TEXT NOT NULL,
    reason TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS runs_trace ON runs (trace_id);
CREATE INDEX IF NOT EXISTS runs_ended ON runs (ended);
CREATE TABLE IF NOT EXISTS work_minutes (
    minute INTEGER NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (minute, kind, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ended_sessions (
    id TEXT PRIMARY KEY,
    expires REAL NOT NULL
) WITHOUT ROWID;
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
    "CREATE INDEX IF NOT EXISTS jobs_ended ON jobs (kind, finished) WHERE state != 'accepted'",
    "CREATE INDEX IF NOT EXISTS jobs_asked ON jobs "
    "(coalesce(json_extract(payload, '$.owner'), ''), number) WHERE kind = 'query'",
)

_OLDER_COLUMNS = {1: ", 0", 2: ""}
"""Older schema version -> columns to add to rows of its jobs. Version 1 had no queue for replies
and no state `cancelled`, version 2 no outcomes."""


def _migration(version: int) -> tuple[str, ...]:
    """Return statements that copy the jobs of an older schema: SQLite cannot change a CHECK in
    place."""
    return (
        "DROP INDEX IF EXISTS jobs_open",
        "DROP INDEX IF EXISTS jobs_id",
        "DROP INDEX IF EXISTS jobs_owed",
        "DROP INDEX IF EXISTS jobs_ended",
        "DROP INDEX IF EXISTS jobs_asked",
        "ALTER TABLE jobs RENAME TO jobs_before",
        *(statement for statement in _SCHEMA.split(";") if statement.strip()),
        f"INSERT INTO jobs SELECT *{_OLDER_COLUMNS[version]} FROM jobs_before",  # noqa: S608 - constants
        "DROP TABLE jobs_before",
    )


class JournalDatabase(SqliteFile):
    """A connection to the journal's file, shared by the threads of a process.

    Raises TransientError when another process keeps the file locked, PermanentError when it is
    damaged, cannot be opened or has another schema.
    """

    def __init__(self, path: Path | str) -> None:
        try:
            super().__init__(path, "the journal", _ADVICE)
            self.connection.executescript(_SCHEMA)
            version = self._migrate()
        except sqlite3.DatabaseError as error:
            if is_busy(error):
                raise TransientError(f"{path}: another process keeps the journal locked") from error
            raise PermanentError(
                f"{path}: the journal cannot be opened ({error}); {choose_advice(error, _ADVICE)}"
            ) from error
        if version != SCHEMA_VERSION:
            self.connection.close()
            raise PermanentError(
                f"{path}: the journal has schema {version}, this version of skillbus reads "
                f"{SCHEMA_VERSION}; use the version that wrote it, or another SKILLBUS_HOME"
            )

    def _migrate(self) -> int:
        """Bring an older schema up to date, in one process at a time; returns the file's schema."""
        self.connection.execute("BEGIN IMMEDIATE")
        row = self.connection.execute("SELECT schema_version FROM meta").fetchone()
        version = int(row[0]) if row else SCHEMA_VERSION
        if row is None:
            self.connection.execute("INSERT INTO meta VALUES (?)", (SCHEMA_VERSION,))
        elif version in _OLDER_COLUMNS:
            for statement in _migration(version):
                self.connection.execute(statement)
            self.connection.execute("UPDATE meta SET schema_version = ?", (SCHEMA_VERSION,))
            version = SCHEMA_VERSION
        if version == SCHEMA_VERSION:
            for statement in _LATER_INDEXES:
                self.connection.execute(statement)
        self.connection.execute("COMMIT")
        return version
