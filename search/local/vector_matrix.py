"""Exact nearest neighbours of the embedded index: all skill vectors in one float32 matrix."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from search.batches import batches
from search.blob_codec import HASH_BYTES, dequantise, unpack_filters
from search.local.filter_places import FilterPlaces
from search.local.revision_store import SQL_BATCH, RevisionStore, select_vectors
from search.local.store_follower import StoreFollower
from search.protocol import Filters, Vector
from skills.record import RevisionKey

_GROWTH = 1.25


@dataclass(slots=True)
class _Table:
    """A snapshot of the vectors in memory.

    Rows below `size` never change, so that searches need no lock; rows beyond are spare room.
    """

    numbers: npt.NDArray[np.int64]
    vectors: npt.NDArray[np.float32]
    keys: list[RevisionKey] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)
    key_places: dict[RevisionKey, int] = field(default_factory=dict)
    filters: FilterPlaces = field(default_factory=FilterPlaces)
    size: int = 0


class VectorMatrix(StoreFollower):
    """The skill vectors of every revision.

    Row numbers only grow, so that new rows are those above the last number; after a delete the
    whole table is read again.
    """

    def __init__(self, store: RevisionStore, dimension: int) -> None:
        super().__init__(store)
        self._dimension = dimension
        self._table = self._empty(0)

    def _empty(self, room: int) -> _Table:
        return _Table(
            numbers=np.empty(room, dtype=np.int64),
            vectors=np.empty((2, room, self._dimension), dtype=np.float32),
        )

    def get_key(self, number: int) -> RevisionKey | None:
        """Return the revision under a row number, None if it was deleted."""
        table = self._table
        place = table.places.get(number)
        return None if place is None else table.keys[place]

    def vectors(self, keys: Iterable[RevisionKey]) -> dict[RevisionKey, Vector]:
        """Return both vectors (2, dimension) of each revision that is in memory."""
        table = self._table
        found = {}
        for key in keys:
            place = table.key_places.get(key, table.size)
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
        best = best[np.lexsort((table.numbers[best], -scores[best]))]
        return [(table.keys[i], float(scores[i])) for i in best.tolist() if scores[i] > 0.0]

    # -- following the store

    @override
    def _read(self, connection: sqlite3.Connection) -> None:
        newest, rows = connection.execute(
            "SELECT COALESCE(MAX(number), 0), COUNT(*) FROM revisions"
        ).fetchone()
        table = self._table
        last = int(table.numbers[table.size - 1]) if table.size else 0
        if newest == last and rows == table.size:
            return
        added = connection.execute(
            "SELECT COUNT(*) FROM revisions WHERE number > ?", (last,)
        ).fetchone()[0]
        if table.size + added != rows:
            table, last, added = self._empty(rows), 0, rows
        self._table = self._extended(connection, table, last, int(added))

    def _extended(
        self, connection: sqlite3.Connection, old: _Table, last: int, added: int
    ) -> _Table:
        """Return the table with the rows above `last` added; shares arrays with the old one."""
        table = replace(old)
        if table.size + added > len(table.numbers):
            room = int((table.size + added) * _GROWTH) if table.size else added
            grown = self._empty(room)
            grown.numbers[: table.size] = table.numbers[: table.size]
            grown.vectors[:, : table.size] = table.vectors[:, : table.size]
            table.numbers, table.vectors = grown.numbers, grown.vectors
        for number, key, filters, pair in _rows(connection, last):
            place = table.size
            table.numbers[place] = number
            table.vectors[:, place] = pair
            table.keys.append(key)
            table.places[number] = place
            table.key_places[key] = place
            table.filters.add(place, unpack_filters(filters))
            table.size += 1
        return table


def _rows(
    connection: sqlite3.Connection, last: int
) -> Iterator[tuple[int, RevisionKey, str, Vector]]:
    """Yield (number, key, filters, both vectors) of the rows above `last`, in order."""
    rows = connection.execute(
        "SELECT number, skill_id, seq, filters, vector_hashes FROM revisions"
        " WHERE number > ? ORDER BY number",
        (last,),
    )
    for batch in batches(rows, SQL_BATCH):
        hashes = [bytes(blob[i : i + HASH_BYTES]) for *_, blob in batch for i in (0, HASH_BYTES)]
        known = {
            text: dequantise(scale, data)
            for text, scale, data in select_vectors(connection, hashes)
        }
        for place, (number, skill_id, seq, filters, _) in enumerate(batch):
            pair = np.stack([known[hashes[2 * place]], known[hashes[2 * place + 1]]])
            yield number, RevisionKey(skill_id, seq), filters, pair
