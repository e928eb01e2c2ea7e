"""SQLite file of the embedded store: connections, transactions, errors, schema.

WAL with synchronous FULL: a committed transaction survives a kill and a power cut, and readers of
any process see the last commit while one process writes.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from config.errors import PermanentError, TransientError, UsageError
from graph.named_statements import load_statements, read_text

SCHEMA_VERSION = 10
_BUSY_SECONDS = 15.0
_TRANSIENT_CODES = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_INTERRUPT,
}


class Database:
    """Connections to one file, one per thread; a lock serialises the writes of the process.

    The connection of a thread that has ended is closed when another thread opens one.
    """

    def __init__(self, path: Path, *, writable: bool) -> None:
        """Open the file; with `writable`, create or upgrade it.

        Raises UsageError if there is no file to read or its schema is older, PermanentError for a
        damaged file or an unknown schema, TransientError if the disk is full or the file is locked.
        """
        self._path = path
        self._writable = writable
        self._opened: dict[threading.Thread, sqlite3.Connection] = {}
        self._guard = threading.Lock()
        self._write_lock = threading.Lock()
        self._closed = False
        if writable:
            path.parent.mkdir(parents=True, exist_ok=True)
        elif not path.is_file():
            raise UsageError(f"there is no library at {path}: sync a source first")
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
                f"{SCHEMA_VERSION}: `skillbus sync` or `skillbus serve` upgrades it"
            )
        if row[0] != SCHEMA_VERSION:
            raise PermanentError(
                f"{self._path} has schema {row[0]}, this version of skillbus reads "
                f"{SCHEMA_VERSION}: move the file away and sync the sources again"
            )

    def _create(self, connection: sqlite3.Connection) -> None:
        """Create the schema in an empty file, or upgrade an older one, in one transaction."""
        connection.execute("BEGIN IMMEDIATE")
        try:
            empty = not connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
            if empty:
                schema = read_text("graph.local", "schema.sql")
                for statement in _statements(schema):
                    connection.execute(statement)
                connection.execute(
                    "INSERT INTO meta VALUES ('seq', 0), ('epoch', 0), ('rules_version', 0)"
                )
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION:d}")
            else:
                _upgrade(connection)
            # A random identity, which distinguishes this file from all others.
            connection.execute(
                "INSERT OR IGNORE INTO meta VALUES ('identity', random() & 0x7fffffffffffffff)"
            )
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Open a read transaction, in which all statements see the same commit."""
        with self._errors():
            connection = self._connection()
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                if connection.in_transaction:  # an error of the disk ends it
                    connection.execute("COMMIT")

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Open a write transaction: committed when the block ends, rolled back if it raises."""
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

    def overwrite_deleted(self) -> None:
        """Rewrite the file, so that neither it nor its log contains data of deleted rows.

        Raises TransientError while another connection reads.
        """
        if not self._writable:
            raise UsageError(f"{self._path} was opened for reading only")
        with self._write_lock, self._errors():
            connection = self._connection()
            connection.execute("VACUUM")
            busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        if busy:
            raise TransientError(
                f"{self._path}: deleted rows cannot be overwritten while another process reads; "
                "stop it and try again"
            )

    def read_identity(self) -> str | None:
        """Return an id that distinguishes this file from all others.

        None if only versions of skillbus without this id have written the file.
        """
        with self.read() as connection:
            found = connection.execute("SELECT value FROM meta WHERE key = 'identity'")
            row = found.fetchone()
        return None if row is None else f"{row[0]:x}"

    def close(self) -> None:
        """Close the connections of all threads; later calls raise UsageError."""
        with self._guard:
            self._closed = True
            opened, self._opened = self._opened, {}
        for connection in opened.values():
            connection.close()

    def _connection(self) -> sqlite3.Connection:
        if self._closed:
            raise UsageError(f"{self._path} has been closed")
        return self._opened.get(threading.current_thread()) or self._open()

    def _open(self) -> sqlite3.Connection:
        # Readers also need `rw`: reading a WAL file needs write access to its shared memory.
        mode = "rwc" if self._writable else "rw"
        uri = f"{self._path.resolve().as_uri()}?mode={mode}"
        connection = sqlite3.connect(
            uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        with self._guard:
            self._close_abandoned()
            self._opened[threading.current_thread()] = connection
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA cache_size = -65536")
        connection.execute("PRAGMA temp_store = MEMORY")
        if not self._writable:
            connection.execute("PRAGMA query_only = ON")
        return connection

    def _close_abandoned(self) -> None:
        """Close the connections of threads that have ended."""
        for thread in [one for one in self._opened if not one.is_alive()]:
            self._opened.pop(thread).close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Translate SQLite's errors into SkillbusError; errors in statements are raised as is."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if self._closed:  # by another thread, which also closed the connections in use
                raise UsageError(f"{self._path} has been closed") from error
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in _TRANSIENT_CODES:
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
                    f"{self._path} cannot be opened ({error}): even reading writes files next to "
                    "it; make the folder writable, or name a copy of the home with --home"
                ) from error
            raise


def _upgrade(connection: sqlite3.Connection) -> None:
    """Upgrade a file with an older schema; a file with a newer schema is left unchanged."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    upgrades = load_statements("graph.local", "upgrades.sql")
    for number in range(version + 1, SCHEMA_VERSION + 1) if version else ():
        for statement in _statements(upgrades[str(number)] + ";\n"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {number:d}")


def _statements(script: str) -> Iterator[str]:
    """Yield the statements of a script; `executescript` would commit the transaction first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
