"""Packs: column files next to the store that repeat data of its rows, and the record of them.

The store stays authoritative. A pack covers the rows of a table up to a number; the store records
this number, the number of valid rows in the files, and the folder of the files. It commits that
record after the files are on disk, so that a kill at any point leaves the previous pack. A pack
that is missing, too short or of another version is not used: readers then read rows from the store,
and the writing process creates the pack again.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np

from config.errors import TransientError
from search.local.packs.mapped_columns import (
    Array,
    Block,
    Column,
    MappedColumns,
    append_rows,
    map_columns,
)
from search.local.revision_store import RevisionStore

MAX_DELETED_SHARE = 0.25
"""Share of deleted rows from which on a pack is written anew."""

_CONSTANTS = "constants.npz"
_STORED = "stored"


class PackRecord(NamedTuple):
    """The store's record of a pack.

    rows: valid rows in the files. last: row number up to which the pack covers its table.
    """

    folder: str
    rows: int
    last: int


class NewRows(NamedTuple):
    """A block of the rows to append. last: the highest of their numbers."""

    block: Block
    last: int


class Derivation(NamedTuple):
    """Columns that are computed from others.

    choose: returns the constants of the computation, from the store; called when a pack is begun.
    derive: returns the values of the columns. max_growth: a pack is rewritten when it has this many
    times the rows that the store had when its constants were chosen.
    """

    choose: Callable[[sqlite3.Connection], Mapping[str, Array]]
    derive: Callable[[Block, Mapping[str, Array]], Mapping[str, Array]]
    max_growth: float


@dataclass(frozen=True, slots=True)
class PackFormat:
    """Format of a pack.

    version: changes with everything that determines the content of the files. read_rows: yields the
    rows of the store above a number, in order, without the derived columns. table, number: the
    table of these rows, and the column of its row numbers, which only grow.
    """

    name: str
    version: str
    columns: Sequence[Column]
    read_rows: Callable[[sqlite3.Connection, int], Iterator[NewRows]]
    table: str = "revisions"
    number: str = "number"
    derivation: Derivation | None = None


def read_record(connection: sqlite3.Connection, pack: PackFormat) -> PackRecord | None:
    """Return the store's record of a pack; None if it has no pack of this version."""
    row = connection.execute(
        "SELECT folder, rows, last FROM packs WHERE name = ? AND version = ?",
        (pack.name, pack.version),
    ).fetchone()
    return None if row is None else PackRecord(*row)


def map_pack(folder: Path, pack: PackFormat, record: PackRecord | None) -> MappedColumns | None:
    """Map the files that a record names; None if they cannot be mapped.

    folder: contains all packs of the store.
    """
    if record is None:
        return None
    columns = map_columns(folder / record.folder, pack.columns, record.rows)
    if columns is None or pack.derivation is None:
        return columns
    constants = _load_constants(folder / record.folder)
    return None if constants is None else replace(columns, constants=constants)


def _load_constants(folder: Path) -> Mapping[str, Array] | None:
    try:
        # Opened here, since numpy leaves a file open that is no archive.
        with (folder / _CONSTANTS).open("rb") as file, np.load(file, allow_pickle=False) as saved:
            return dict(saved)
    except (OSError, ValueError, EOFError, BadZipFile):
        return None


class PackWriter:
    """Keeps one pack of the store up to date. The caller serialises calls."""

    def __init__(self, store: RevisionStore, folder: Path, pack: PackFormat) -> None:
        self._store = store
        self._folder = folder
        self._pack = pack
        self._checked: PackRecord | None = None

    def write_if_due(self, min_rows: int) -> None:
        """Append the rows that the pack lacks, if there are at least `min_rows`; rewrite the pack
        if it is unusable or many of its rows were deleted.

        Deleted rows are counted only at the first call and when rows are due, since counting time
        grows with the number of rows. Raises TransientError if the disk is full.
        """
        with self._store.read_connection() as connection:
            record = read_record(connection, self._pack)
            checked = record is not None and record == self._checked
            due = self._count_tail(connection, record.last if record else 0, min_rows) >= min_rows
            if checked and not due:
                return
            self._checked = record
            if record is None or not self._is_usable(connection, record):
                record = PackRecord(f"{self._pack.name}-{secrets.token_hex(8)}", 0, 0)
                due = self._count_tail(connection, 0, min_rows) >= min_rows
        if due:
            self._commit(self._append(record))

    def rewrite(self) -> None:
        """Write the pack anew without deleted rows, if there is one; the former files are deleted,
        and those of packs that were never recorded."""
        with self._store.read_connection() as connection:
            has_pack = read_record(connection, self._pack) is not None
            has_rows = self._count_tail(connection, 0, 1) > 0
        record = PackRecord(f"{self._pack.name}-{secrets.token_hex(8)}", 0, 0)
        if has_pack and has_rows:
            self._commit(self._append(record))
            return
        with self._store.write_transaction() as connection:
            connection.execute("DELETE FROM packs WHERE name = ?", (self._pack.name,))
        self._delete_others(record)

    def _count_tail(self, connection: sqlite3.Connection, last: int, max_rows: int) -> int:
        """Return the number of rows that a pack lacks, at most `max_rows`."""
        table, number = self._pack.table, self._pack.number
        rows = f"SELECT 1 FROM {table} WHERE {number} > ? LIMIT ?"  # noqa: S608 - constants
        (count,) = connection.execute(f"SELECT COUNT(*) FROM ({rows})", (last, max_rows)).fetchone()  # noqa: S608 - constants
        return int(count)

    def _is_usable(self, connection: sqlite3.Connection, record: PackRecord) -> bool:
        """Return whether the files exist, few of their rows are deleted and their constants are
        recent."""
        mapped = map_pack(self._folder, self._pack, record)
        if mapped is None:
            return False
        table, number = self._pack.table, self._pack.number
        stored, packed = connection.execute(
            f"SELECT COUNT(*), TOTAL({number} <= ?) FROM {table}",  # noqa: S608 - constants
            (record.last,),
        ).fetchone()
        if record.rows - packed > MAX_DELETED_SHARE * record.rows:
            return False
        derivation = self._pack.derivation
        return derivation is None or stored <= derivation.max_growth * mapped.constants[_STORED]

    def _append(self, record: PackRecord) -> PackRecord:
        last, folder = record.last, self._folder / record.folder

        def blocks() -> Iterator[Block]:
            nonlocal last
            with self._store.read_connection() as connection:
                constants = self._constants(connection, record)
                for block, number in self._pack.read_rows(connection, record.last):
                    yield self._derive(block, constants)
                    last = number

        try:
            rows = append_rows(folder, self._pack.columns, record.rows, blocks())
        except OSError as error:
            raise TransientError(f"{folder} cannot be written: {error}") from error
        return PackRecord(record.folder, rows, last)

    def _constants(self, connection: sqlite3.Connection, record: PackRecord) -> Mapping[str, Array]:
        """Return the constants of the pack; they are chosen and saved for a new one."""
        if self._pack.derivation is None:
            return {}
        folder = self._folder / record.folder
        if record.rows and (known := _load_constants(folder)) is not None:
            return known
        (stored,) = connection.execute(f"SELECT COUNT(*) FROM {self._pack.table}").fetchone()  # noqa: S608 - a constant
        chosen: dict[str, Any] = {_STORED: stored, **self._pack.derivation.choose(connection)}
        with (folder / _CONSTANTS).open("wb") as file:
            np.savez(file, **chosen)
            file.flush()
            os.fsync(file.fileno())
        return chosen

    def _derive(self, block: Block, constants: Mapping[str, Array]) -> Block:
        if self._pack.derivation is None:
            return block
        derived = self._pack.derivation.derive(block, constants)
        return block._replace(values={**block.values, **derived})

    def _commit(self, record: PackRecord) -> None:
        with self._store.write_transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO packs VALUES (?, ?, ?, ?, ?)",
                (self._pack.name, self._pack.version, *record),
            )
        self._checked = record
        self._delete_others(record)

    def _delete_others(self, record: PackRecord) -> None:
        for other in self._folder.glob(f"{self._pack.name}-*"):
            if other.name != record.folder:
                # Processes that have mapped it keep their maps.
                shutil.rmtree(other, ignore_errors=True)
