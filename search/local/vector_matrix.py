"""Nearest neighbours of the embedded index by skill vectors, mapped or in memory.

Binary codes find the likely nearest of the pack, whose cosines are then computed from the vectors
themselves, so that every score is exact. Up to EXACT_ROWS rows, all are compared.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from search.local.filter_places import FilterPlaces
from search.local.packs.column_pack import PackRecord, map_pack, read_record
from search.local.packs.packed_revisions import read_keys
from search.local.packs.vector_pack import VectorPack, vector_format
from search.local.revision_store import RevisionStore
from search.local.store_follower import StoreFollower
from search.local.vector_rows import RevisionVectors, read_removed, read_skill_vectors
from search.protocol import Filters, Vector
from skills.record import RevisionKey

EXACT_ROWS = 4096
"""Minimum number of revisions of the pack whose cosines a search computes. Of 12,148 revisions they
hold .999 of the nearest 150."""

_ROWS_PER_HIT = 10
"""Revisions compared for each requested one, if that is more than EXACT_ROWS."""

_GROWTH = 1.25
"""Room of a new array, as a multiple of the rows in use."""

_MAX_DEAD_SHARE = 0.25
_MIN_COMPACTED = 1_000
"""Rows of removed revisions, as a share of all and at least, from which the table is compacted."""


@dataclass(slots=True)
class _Table:
    """A snapshot of the vectors in memory.

    Rows below `size` never change, except that rows of removed revisions become zero; rows above
    are spare room. numbers: row number of the store -> place.
    """

    vectors: npt.NDArray[np.float32]
    keys: list[RevisionKey] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)
    places: dict[RevisionKey, int] = field(default_factory=dict)
    filters: FilterPlaces = field(default_factory=FilterPlaces)
    size: int = 0


class _View(NamedTuple):
    """Snapshot that a search reads: the rows of the pack, then those in memory."""

    pack: VectorPack | None
    table: _Table

    def cosines(
        self, vector: Vector, vector_field: int, count: int, filters: Filters
    ) -> tuple[npt.NDArray[np.intp], Vector]:
        """Return rows that pass the filters, the likely nearest `count` among them, in any order,
        and their cosines."""
        table = self.table
        allowed = table.filters.allowed(table.size, filters)
        rows = np.arange(table.size) if allowed is None else np.flatnonzero(allowed)
        cosines: Vector = np.vecdot(table.vectors[vector_field, : table.size], vector)[rows]
        if self.pack is None:
            return rows, cosines
        packed, near = self.pack.cosines(vector, vector_field, count, filters)
        rows = np.concatenate([packed, rows + len(self.pack)])
        return rows, np.concatenate([near, cosines])

    def keys(self, places: npt.NDArray[np.intp]) -> list[RevisionKey]:
        """Return the revisions of rows."""
        return read_keys(self.pack, self.table.keys, places)


class VectorMatrix(StoreFollower):
    """Skill vectors of all revisions that have them, mapped or in memory.

    Vectors in the pack are mapped; vectors that the pack lacks are in memory, or all vectors if
    there is no usable pack. packs: folder of the packs.
    """

    def __init__(self, store: RevisionStore, packs: Path, dimension: int) -> None:
        super().__init__(store)
        self._packs = packs
        self._format = vector_format(dimension)
        self._dimension = dimension
        self._record: PackRecord | None = None
        self._view = _View(None, self._empty(0))
        self._position = 0

    def _empty(self, room: int) -> _Table:
        return _Table(np.zeros((2, room, self._dimension), dtype=np.float32))

    def vectors(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, Vector]:
        """Return both vectors (2, dimension) of each revision that has them."""
        pack, table = self._view
        found = {} if pack is None else pack.vectors(keys)
        for key in keys:
            place = table.places.get(key, table.size)
            if place < table.size:
                found[key] = table.vectors[:, place]
        return found

    def cosines(
        self, keys: Sequence[RevisionKey], vector: Vector
    ) -> dict[RevisionKey, tuple[float, float]]:
        """Return the cosines of a unit vector with both vectors of each revision that has them."""
        pack, table = self._view
        vector = np.asarray(vector, dtype=np.float32)
        found = {} if pack is None else pack.pair_cosines(keys, vector)
        recent = [key for key in keys if table.places.get(key, table.size) < table.size]
        places = [table.places[key] for key in recent]
        pairs = np.vecdot(table.vectors[:, places], vector).tolist()
        return found | dict(zip(recent, zip(*pairs, strict=True), strict=True))

    def find_nearest(
        self, vector: Vector, vector_field: int, limit: int, filters: Filters
    ) -> list[tuple[RevisionKey, float]]:
        """Return (revision, cosine) of the nearest revisions by one of the two skill vectors, best
        first.

        Zero vectors (text in a language that the encoder does not know) are never found.
        """
        view, vector = self._view, np.asarray(vector, dtype=np.float32)
        compared = max(EXACT_ROWS, _ROWS_PER_HIT * limit)
        rows, scores = view.cosines(vector, vector_field, compared, filters)
        count = min(limit, len(scores))
        if count < 1:
            return []
        best = np.argpartition(-scores, count - 1)[:count]
        best = best[np.lexsort((rows[best], -scores[best]))]
        best = best[scores[best] > 0.0]
        return list(zip(view.keys(rows[best]), scores[best].tolist(), strict=True))

    # -- following the store

    @override
    def _load_changes(self) -> None:
        super()._load_changes()
        self._compact()

    @override
    def _read(self, connection: sqlite3.Connection) -> None:
        record = read_record(connection, self._format)
        if record != self._record:
            columns = map_pack(self._packs, self._format, record)
            pack = None if columns is None else VectorPack(columns)
            self._record, self._view = record, _View(pack, self._empty(0))
            self._position = record.last if record and pack else 0
        pack, table = self._view
        packed = self._record.last if self._record and pack else 0
        if pack is not None:
            pack.read_removed(connection, packed)
        for number in read_removed(
            connection, "with_vectors", table.numbers, self._position, packed
        ):
            place = table.numbers.pop(number)
            del table.places[table.keys[place]]
            table.vectors[:, place] = 0.0
        for some in read_skill_vectors(connection, self._position):
            self._append(some)
            self._position = some[-1].position

    def _append(self, revisions: Sequence[RevisionVectors[Vector]]) -> None:
        """Add the rows of revisions; arrays that need not grow are shared with the previous
        table."""
        table = _with_room(self._view.table, len(revisions))
        for one in revisions:
            place = table.size
            table.vectors[:, place] = one.vectors
            table.keys.append(one.key)
            table.numbers[one.number] = place
            table.places[one.key] = place
            table.filters.add(place, one.filters)
            table.size += 1
        self._view = self._view._replace(table=table)

    def _compact(self) -> None:
        """Drop the rows of removed revisions when there are many."""
        table = self._view.table
        dead = table.size - len(table.numbers)
        if dead <= max(_MAX_DEAD_SHARE * table.size, _MIN_COMPACTED):
            return
        fresh = self._empty(int(len(table.numbers) * _GROWTH))
        for number, place in table.numbers.items():
            key = table.keys[place]
            fresh.vectors[:, fresh.size] = table.vectors[:, place]
            fresh.keys.append(key)
            fresh.numbers[number] = fresh.places[key] = fresh.size
            fresh.filters.add(fresh.size, table.filters.of(place))
            fresh.size += 1
        self._view = self._view._replace(table=fresh)


def _with_room(old: _Table, added: int) -> _Table:
    """Return a table with room for more rows; shares what it can with the old table."""
    needed = old.size + added
    if needed <= old.vectors.shape[1]:
        return replace(old)
    room = int(needed * _GROWTH) if old.size else needed
    more = room - old.vectors.shape[1]
    return replace(old, vectors=np.pad(old.vectors, ((0, 0), (0, more), (0, 0))))
