"""Exact nearest neighbours of the embedded index: all skill vectors in one float32 matrix."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from search.local.filter_places import FilterPlaces
from search.local.revision_store import RevisionStore
from search.local.store_follower import StoreFollower
from search.local.vector_rows import RevisionVectors, read_removed, read_skill_vectors
from search.protocol import Filters, Vector
from skills.record import RevisionKey

_GROWTH = 1.25
_MAX_DEAD_SHARE = 0.25
_MIN_COMPACTED = 1_000


@dataclass(slots=True)
class _Table:
    """A snapshot of the vectors in memory.

    Rows below `size` never change, but that those of removed revisions become zero; rows beyond
    are spare room. numbers: row number of the store -> place.
    """

    vectors: npt.NDArray[np.float32]
    keys: list[RevisionKey] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)
    places: dict[RevisionKey, int] = field(default_factory=dict)
    filters: FilterPlaces = field(default_factory=FilterPlaces)
    size: int = 0


class VectorMatrix(StoreFollower):
    """The skill vectors of the revisions that have them."""

    def __init__(self, store: RevisionStore, dimension: int) -> None:
        super().__init__(store)
        self._dimension = dimension
        self._table = self._empty(0)
        self._position = 0

    def _empty(self, room: int) -> _Table:
        return _Table(np.zeros((2, room, self._dimension), dtype=np.float32))

    def vectors(self, keys: Iterable[RevisionKey]) -> dict[RevisionKey, Vector]:
        """Return both vectors (2, dimension) of each revision that is in memory."""
        table = self._table
        found = {}
        for key in keys:
            place = table.places.get(key, table.size)
            if place < table.size:
                found[key] = table.vectors[:, place]
        return found

    def find_nearest(
        self, vector: Vector, vector_field: int, limit: int, filters: Filters
    ) -> list[tuple[RevisionKey, float]]:
        """Return (revision, cosine) of the nearest by one of the two skill vectors, best first.

        Zero vectors (text in a language that the encoder does not know) are never found.
        """
        table = self._table
        size = table.size
        if limit < 1 or not size:
            return []
        # vecdot, not a matrix product: as fast, and leaves no BLAS threads spinning.
        scores = np.vecdot(table.vectors[vector_field, :size], np.asarray(vector, dtype=np.float32))
        allowed = table.filters.allowed(size, filters)
        if allowed is not None:
            scores = np.where(allowed, scores, -np.inf)
        count = min(limit, size)
        best = np.argpartition(-scores, count - 1)[:count]
        best = best[np.lexsort((best, -scores[best]))]
        return [(table.keys[i], float(scores[i])) for i in best.tolist() if scores[i] > 0.0]

    # -- following the store

    @override
    def _load_changes(self) -> None:
        super()._load_changes()
        self._compact()

    @override
    def _read(self, connection: sqlite3.Connection) -> None:
        table = self._table
        for number in read_removed(connection, "with_vectors", table.numbers, self._position):
            place = table.numbers.pop(number)
            del table.places[table.keys[place]]
            table.vectors[:, place] = 0.0
        for some in read_skill_vectors(connection, self._position):
            self._append(some)
            self._position = some[-1].position

    def _append(self, revisions: Sequence[RevisionVectors[Vector]]) -> None:
        """Add the rows of revisions; arrays are shared with the table before, unless they grow."""
        table = _with_room(self._table, len(revisions))
        for one in revisions:
            place = table.size
            table.vectors[:, place] = one.vectors
            table.keys.append(one.key)
            table.numbers[one.number] = place
            table.places[one.key] = place
            table.filters.add(place, one.filters)
            table.size += 1
        self._table = table

    def _compact(self) -> None:
        """Move the rows together when many are of removed revisions."""
        table = self._table
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
        self._table = fresh


def _with_room(old: _Table, added: int) -> _Table:
    """A table that has room for more rows; shares what it can with the old one."""
    needed = old.size + added
    if needed <= old.vectors.shape[1]:
        return replace(old)
    room = int(needed * _GROWTH) if old.size else needed
    more = room - old.vectors.shape[1]
    return replace(old, vectors=np.pad(old.vectors, ((0, 0), (0, more), (0, 0))))
