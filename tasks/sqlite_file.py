"""SQLite file that the threads of a process share: reads, transactions and their errors."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from config.errors import PermanentError, TransientError

_BUSY_SECONDS = 10.0


def is_busy(error: sqlite3.Error) -> bool:
    """Return whether another connection has the file locked."""
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_damaged(error: sqlite3.Error) -> bool:
    """Return whether the file is damaged, or no database."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def choose_advice(error: sqlite3.Error, if_damaged: str) -> str:
    """Return what to do about a file that cannot be opened: it may be sound, as on a full disk."""
    is_sound = isinstance(error, sqlite3.OperationalError)
    if not is_sound:
        return if_damaged
    return (
        "check its permissions and the free space, and that its folder is writable: even reading "
        "writes files next to it"
    )


class SqliteFile:
    """A connection to a SQLite file in WAL mode, created readable by its owner only.

    name: name of the file in messages, such as `the journal`. advice: what to do when it is
    damaged. `:memory:` as path keeps everything in this process.
    """

    def __init__(self, path: Path | str, name: str, advice: str) -> None:
        self.path = path
        self.lock = threading.RLock()
        self._name = name
        self._advice = advice
        self._closed = False
        if path != ":memory:":
            _create_private_file(path)
        self.connection = sqlite3.connect(
            str(path), timeout=_BUSY_SECONDS, check_same_thread=False, isolation_level=None
        )
        try:
            self.connection.execute("PRAGMA journal_mode=WAL")
        except BaseException:
            self.connection.close()
            raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection for one read, locked against other threads.

        Raises TransientError for a locked or closed file, PermanentError for a damaged one. Errors
        in statements are raised as is.
        """
        with self.lock, self._translating("read"):
            yield self.connection

    def read(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of one statement; raises as `reading` does."""
        with self.reading() as connection:
            return connection.execute(statement, values).fetchall()

    @contextmanager
    def transaction(self, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """Yield the connection for one write, rolled back on any error; raises as `reading` does.

        durable: wait for the disk; otherwise the write survives a kill of the process only.
        """
        with self.lock, self._translating("written"):
            try:
                self.connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
                self.connection.execute("BEGIN IMMEDIATE")
                yield self.connection
                self.connection.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise

    def sync(self) -> None:
        """Wait until all commits are on the disk, while other threads and processes can write.

        A commit that waits for the disk itself would hold the lock meanwhile. Raises
        TransientError.
        """
        try:
            log = os.open(f"{self.path}-wal", os.O_RDONLY)
        except FileNotFoundError:  # in memory, or a file system without WAL
            return
        except OSError as error:
            raise self._failed("written", error) from error
        # SQLite holds no lock on this file that closing it here would release.
        try:
            os.fsync(log)
        except OSError as error:
            raise self._failed("written", error) from error
        finally:
            os.close(log)

    def overwrite_deleted(self) -> None:
        """Write the file anew, so that neither it nor its log holds anything of deleted rows.

        Raises TransientError while another connection reads or writes.
        """
        with self.lock, self._translating("written"):
            self.connection.execute("VACUUM")
            (busy, *_) = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise TransientError(
                f"{self.path}: deleted rows of {self._name} cannot be overwritten while another "
                "process reads them; stop it and try again"
            )

    def _roll_back(self) -> None:
        if not self._closed and self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    @contextmanager
    def _translating(self, verb: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            # A process that stops closes its files while tasks still run.
            if self._closed or isinstance(error, sqlite3.OperationalError):
                raise self._failed(verb, error) from error
            if is_damaged(error):
                raise PermanentError(
                    f"{self.path}: {self._name} is damaged ({error}); {self._advice}"
                ) from error
            raise

    def _failed(self, verb: str, error: Exception) -> TransientError:
        reason = f"{self._name} cannot be {verb}: {error}"
        # Errors of the operating system name files, which remote callers must not see.
        public = f"{self._name} cannot be {verb}"
        return TransientError(f"{self.path}: {reason}", public_message=public)

    def close(self) -> None:
        """Release the file."""
        with self.lock:
            self._closed = True
            self.connection.close()


def _create_private_file(path: Path | str) -> None:
    """Create an empty file that only its owner can read, since it will hold queries.

    SQLite gives its auxiliary files the same mode. Errors are ignored: opening the database
    reports them.
    """
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
