"""Rewrite of the store of an index, to remove deleted rows from its files."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from config.errors import TransientError
from search.local.revision_store import BUSY_SECONDS


def rewrite_store(path: Path) -> None:
    """Write a SQLite file anew, so that neither it nor its log holds anything of deleted rows.

    Raises TransientError while another connection reads or writes.
    """
    try:
        with closing(
            sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        ) as connection:
            connection.execute("VACUUM")
            busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    except sqlite3.OperationalError as error:
        raise TransientError(f"{path}: deleted rows cannot be overwritten: {error}") from error
    if busy:
        raise TransientError(
            f"{path}: deleted rows cannot be overwritten while another process reads; stop it and "
            "try again"
        )
