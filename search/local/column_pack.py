"""Packs: column files next to the store that repeat data of its rows, and the record of them.

The store stays the truth. A pack covers the rows of a table up to a number; the store records
which number, how many rows of the files count, and in which folder they are. That record is
committed after the files are on disk, so that a kill at any point leaves the pack that was recorded
before. A pack that is missing, short or of another version is as good as none: readers then read
rows from the store, and the writing process makes it again.
"""

from __future__ import annotations

import secrets
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from config.errors import TransientError
from search.local.mapped_columns import (
    Block,
    Column,
    MappedColumns,
    append_rows,
    map_columns,
)
from search.local.revision_store import RevisionStore

MAX_DELETED_SHARE = 0.25
"""Share of deleted rows from which on a pack is written anew."""


class PackRecord(NamedTuple):
    """Which rows of which files count. last: the number up to which the pack covers its table."""

    folder: str
    rows: int
    last: int


class NewRows(NamedTuple):
    """A block of the rows to append. last: the highest of their numbers."""

    block: Block
    last: int


@dataclass(frozen=True, slots=True)
class PackFormat:
    """What a pack is of. version: of all that decides what is in its files. read_rows: yields the
    rows of the store above a number, in order. table, number: the table of these rows, and its
    column of numbers, which only grow."""

    name: str
    version: str
    columns: Sequence[Column]
    read_rows: Callable[[sqlite3.Connection, int], Iterator[NewRows]]
    table: str = "revisions"
    number: str = "number"


def read_record(connection: sqlite3.Connection, pack: PackFormat) -> PackRecord | None:
    """Return what the store records of a pack; None without one of this version."""
    table = "SELECT 1 FROM sqlite_master WHERE name = 'packs'"
    if connection.execute(table).fetchone() is None:  # no version that packs has written it
        return None
    row = connection.execute(
        "SELECT folder, rows, last FROM packs WHERE name = ? AND version = ?",
        (pack.name, pack.version),
    ).fetchone()
    return None if row is None else PackRecord(*row)


def map_pack(folder: Path, pack: PackFormat, record: PackRecord | None) -> MappedColumns | None:
    """Map the files that a record names; None if that cannot be done.

    folder: of all packs of the store.
    """
    if record is None:
        return None
    return map_columns(folder / record.folder, pack.columns, record.rows)


class PackWriter:
    """Keeps one pack of the store up to date. The caller serialises calls."""

    def __init__(self, store: RevisionStore, folder: Path, pack: PackFormat) -> None:
        self._store = store
        self._folder = folder
        self._pack = pack

    def write_if_due(self, least: int) -> None:
        """Append the rows that the pack lacks, if there are `least` or more; write all anew if
        there is no pack that can be used, or much of it was deleted.

        Raises TransientError if the disk is full.
        """
        with self._store.read_connection() as connection:
            record = read_record(connection, self._pack)
            if map_pack(self._folder, self._pack, record) is None:
                record = None
            last = record.last if record else 0
            table, number = self._pack.table, self._pack.number
            stored, tail = connection.execute(
                f"SELECT (SELECT COUNT(*) FROM {table}),"  # noqa: S608 - constants
                f" (SELECT COUNT(*) FROM (SELECT 1 FROM {table} WHERE {number} > ? LIMIT ?))",
                (last, least),
            ).fetchone()
        if record is not None and record.rows + tail - stored > MAX_DELETED_SHARE * record.rows:
            record = None
        elif tail < least:
            return
        folder = f"{self._pack.name}-{secrets.token_hex(8)}"
        self._commit(self._append(record or PackRecord(folder, 0, 0)))

    def _append(self, record: PackRecord) -> PackRecord:
        last = record.last

        def blocks() -> Iterator[Block]:
            nonlocal last
            with self._store.read_connection() as connection:
                for block, number in self._pack.read_rows(connection, record.last):
                    yield block
                    last = number

        folder = self._folder / record.folder
        try:
            rows = append_rows(folder, self._pack.columns, record.rows, blocks())
        except OSError as error:
            raise TransientError(f"{folder} cannot be written: {error}") from error
        return PackRecord(record.folder, rows, last)

    def _commit(self, record: PackRecord) -> None:
        with self._store.write_transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO packs VALUES (?, ?, ?, ?, ?)",
                (self._pack.name, self._pack.version, *record),
            )
        for other in self._folder.glob(f"{self._pack.name}-*"):
            if other.name != record.folder:
                # Processes that have mapped it keep their maps.
                shutil.rmtree(other, ignore_errors=True)
