"""A SQLite file as the embedded store needs it: threads, transactions, errors, schema.

WAL with synchronous FULL: a transaction that returned survives a kill and a power cut, and
readers of any process see the last commit beside the one writer.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from config.errors import PermanentError, TransientError, UsageError
from graph.named_statements import load_statements, read_text

SCHEMA_VERSION = 4
_BUSY_SECONDS = 15.0
_PASSING = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_INTERRUPT,
}


class Database:
    """Connections to one file, one a thread; writes are serialised within the process."""

    def __init__(self, path: Path, *, writable: bool) -> None:
        """Open the file, creating it with its schema when `writable` and absent.

        Raises UsageError when there is nothing to read, PermanentError for a damaged file or
        another schema, TransientError when the disk is full or the file locked.
        """
        self._path = path
        self._writable = writable
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._guard = threading.Lock()
        self._write_lock = threading.Lock()
        self._closed = False
        if writable:
            path.parent.mkdir(parents=True, exist_ok=True)
        elif not path.is_file():
            raise UsageError(f"there is no library at {path}: ingest a source first")
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        with self._errors():
            connection = self._connection()
            if self._writable:
                connection.execute("PRAGMA journal_mode = WAL")
                self._create(connection)
            row = connection.execute("PRAGMA user_version").fetchone()
        if 0 < row[0] < SCHEMA_VERSION:
            raise UsageError(
                f"{self._path} has schema {row[0]}, this version of skillbus reads "
                f"{SCHEMA_VERSION}: `skillbus sync` or `skillbus serve` brings it up to that"
            )
        if row[0] != SCHEMA_VERSION:
            raise PermanentError(
                f"{self._path} has schema {row[0]}, this version of skillbus reads "
                f"{SCHEMA_VERSION}: move the file away and ingest the sources again"
            )

    def _create(self, connection: sqlite3.Connection) -> None:
        """Lay out an empty file, or bring an older one up, all of it or nothing."""
        connection.execute("BEGIN IMMEDIATE")
        try:
            empty = not connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
            if empty:
                schema = read_text("graph.local", "schema.sql")
                for statement in _statements(schema):
                    connection.execute(statement)
                connection.execute("INSERT INTO meta VALUES ('seq', 0), ('epoch', 0)")
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION:d}")
            else:
                _upgrade(connection)
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A snapshot: every statement inside sees the same commit."""
        with self._errors():
            connection = self._connection()
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.execute("COMMIT")

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A write transaction: durable when the block is left, undone when it raises."""
        if not self._writable:
            raise UsageError(f"{self._path} was opened for reading only")
        with self._write_lock, self._errors():
            connection = self._connection()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close every thread's connection; calls afterwards raise UsageError."""
        with self._guard:
            self._closed = True
            opened, self._opened = self._opened, []
        for connection in opened:
            connection.close()

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if self._closed:
            raise UsageError(f"{self._path} has been closed")
        if connection is None:
            connection = self._open()
            self._local.connection = connection
        return connection

    def _open(self) -> sqlite3.Connection:
        # `rw` for readers too: a WAL file cannot be read without its shared-memory index
        mode = "rwc" if self._writable else "rw"
        uri = f"{self._path.resolve().as_uri()}?mode={mode}"
        connection = sqlite3.connect(
            uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        with self._guard:
            self._opened.append(connection)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA cache_size = -65536")
        connection.execute("PRAGMA temp_store = MEMORY")
        if not self._writable:
            connection.execute("PRAGMA query_only = ON")
        return connection

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Translate SQLite's errors into ours; a bug in a statement is not disguised as one."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in _PASSING:
                raise TransientError(
                    f"{self._path} is busy or its disk is full: {error}"
                ) from error
            if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise PermanentError(
                    f"{self._path} is damaged ({error}): restore it from a copy, or move it away "
                    "and ingest the sources again"
                ) from error
            if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
                raise PermanentError(
                    f"{self._path} cannot be opened ({error}): check the folder's permissions"
                ) from error
            raise


def _upgrade(connection: sqlite3.Connection) -> None:
    """Bring a file of an earlier version up to this one; a later version's is left alone."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    upgrades = load_statements("graph.local", "upgrades.sql")
    for number in range(version + 1, SCHEMA_VERSION + 1) if version else ():
        for statement in _statements(upgrades[str(number)] + ";\n"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {number:d}")


def _statements(script: str) -> Iterator[str]:
    """The statements of a script, one by one; `executescript` would commit in between."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
