"""Revisions of a pack of vectors: their rows, removals and filters."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from search.blob_codec import pack_filters, unpack_filters
from search.local.filter_places import FilterPlaces
from search.local.packs.key_index import KEY_COLUMNS, KeyIndex, key_block
from search.local.packs.mapped_columns import Array, Block, Column, MappedColumns
from search.local.vector_rows import RevisionVectors, Table, list_numbers
from search.protocol import Filters
from skills.record import RevisionKey

REVISION_COLUMNS = (
    Column("number", "<i8"),
    *KEY_COLUMNS,
    Column("filters", "<u1", lists="filters"),
)


def to_block(revisions: Sequence[RevisionVectors[Any]]) -> Block:
    """Return the values of REVISION_COLUMNS."""
    keys = key_block([one.key for one in revisions])
    filters = [pack_filters(one.filters).encode() for one in revisions]
    return Block(
        len(revisions),
        {
            **keys.values,
            "number": np.array([one.number for one in revisions]),
            "filters": np.frombuffer(b"".join(filters), np.uint8),
        },
        {**keys.lengths, "filters": np.array([len(one) for one in filters])},
    )


class PackedRevisions:
    """Mapped rows of a pack, found by key. Threads may share it; only one of them reads removals.

    table: the table whose revisions the pack holds.
    """

    def __init__(self, columns: MappedColumns, table: Table) -> None:
        self._columns = columns
        self._table = table
        self._keys = KeyIndex(columns)
        self._filters: FilterPlaces | None = None
        self._live = np.ones(columns.rows, dtype=np.bool_)
        self._count = columns.rows

    def __len__(self) -> int:
        return self._columns.rows

    def read_removed(self, connection: sqlite3.Connection, last: int) -> None:
        """Exclude the rows of deleted revisions from now on. last: position of the last row."""
        present = list_numbers(connection, self._table, last, unless=self._count)
        if present is not None:
            self._live = np.isin(self._columns.values["number"], present)
            self._count = len(present)

    def keys(self, places: Array) -> Iterator[RevisionKey]:
        """Yield the revisions of rows."""
        return self._keys.keys(places)

    def find(self, keys: Sequence[RevisionKey]) -> tuple[list[RevisionKey], Array]:
        """Return the given revisions that the pack has, and the place of each."""
        places = self._keys.find(keys)
        found = np.flatnonzero(places >= 0)
        found = found[self._live[places[found]]]
        return [keys[at] for at in found.tolist()], places[found]

    def passing(self, filters: Filters) -> npt.NDArray[np.bool_] | None:
        """Return a mask of the rows that are not removed and pass the filters, (rows,); None if all
        do."""
        live = None if self._count == len(self) else self._live
        if filters == Filters():
            return live
        allowed = self._read_filters().allowed(len(self), filters)
        if allowed is None or live is None:
            return live if allowed is None else allowed
        return allowed & live

    def _read_filters(self) -> FilterPlaces:
        """Return the filter values of all rows, read at the first search with filters."""
        if self._filters is None:
            found = FilterPlaces()
            known: dict[str, Filters] = {}
            for place, one in enumerate(self._iterate_filters()):
                found.add(place, known.get(one) or known.setdefault(one, unpack_filters(one)))
            self._filters = found
        return self._filters

    def _iterate_filters(self) -> Iterator[str]:
        text = self._columns.values["filters"].tobytes().decode()
        start = 0
        for end in self._columns.ends["filters"].tolist():
            yield text[start:end]
            start = end


def read_keys(
    pack: PackedRevisions | None, recent: Sequence[RevisionKey], places: Array
) -> list[RevisionKey]:
    """Return the revisions at places, which count the rows of the pack first, then those in
    memory."""
    packed = 0 if pack is None else len(pack)
    mapped = iter(()) if pack is None else pack.keys(places[places < packed])
    return [next(mapped) if place < packed else recent[place - packed] for place in places.tolist()]
