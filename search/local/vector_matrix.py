"""Skill vectors in memory: exact nearest neighbours over one float32 matrix a process."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from search.blob_codec import HASH_BYTES, dequantise
from search.local.revision_store import RevisionStore, batches, placeholders
from search.protocol import Filters, Vector
from skills.record import RevisionKey

_FILTERS = ("source", "licence", "language", "tool")
_GROWTH = 1.25


@dataclass(slots=True)
class _Table:
    """What is in memory; rows beyond `size` are room to grow. Never changed below `size`."""

    numbers: npt.NDArray[np.int64]
    vectors: npt.NDArray[np.float32]
    keys: list[RevisionKey] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)
    key_places: dict[RevisionKey, int] = field(default_factory=dict)
    values: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    size: int = 0


class VectorMatrix:
    """The skill vectors of every revision, loaded at first use and extended as rows appear.

    Rows are found by their numbers, which only grow; when rows have gone, whoever deleted them,
    the table is read anew. Several threads may search while one refreshes.
    """

    def __init__(self, store: RevisionStore, dimension: int) -> None:
        self._store = store
        self._dimension = dimension
        self._lock = threading.Lock()
        self._table = self._empty(0)
        self._version = -1

    def _empty(self, room: int) -> _Table:
        return _Table(
            numbers=np.empty(room, dtype=np.int64),
            vectors=np.empty((2, room, self._dimension), dtype=np.float32),
        )

    def get_key(self, number: int) -> RevisionKey | None:
        """The revision under a row number, None when it has gone."""
        table = self._table
        place = table.places.get(number)
        return None if place is None else table.keys[place]

    def vectors(self, keys: Iterable[RevisionKey]) -> dict[RevisionKey, Vector]:
        """Both vectors (2, dimension) of each revision that is in memory."""
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
        """(revision, cosine) of the nearest by skill vector `which`, best first.

        Skills with a zero vector (text in a language the encoder does not know) are no one's
        neighbours.
        """
        table = self._table
        size = table.size
        if limit < 1 or not size:
            return []
        # Row by row rather than one product: as fast, and no pool of threads is left spinning.
        scores = np.vecdot(table.vectors[vector_field, :size], np.asarray(vector, dtype=np.float32))
        allowed = _allowed(table, size, filters)
        if allowed is not None:
            scores = np.where(allowed, scores, -np.inf)
        count = min(limit, size)
        best = np.argpartition(-scores, count - 1)[:count]
        best = best[np.lexsort((table.numbers[best], -scores[best]))]
        return [(table.keys[i], float(scores[i])) for i in best.tolist() if scores[i] > 0.0]

    # -- following the store

    def refresh(self) -> None:
        """See what has been committed since; cheap when nothing was."""
        with self._lock:
            data_version = self._store.data_version()
            if data_version != self._version:
                self._read()
                self._version = data_version

    def _read(self) -> None:
        with self._store.read_connection() as connection:
            connection.execute("BEGIN")
            try:
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
            finally:
                connection.execute("COMMIT")

    def _extended(
        self, connection: sqlite3.Connection, old: _Table, last: int, added: int
    ) -> _Table:
        """A table with the rows above `last`; shares what did not change with the old one."""
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
            for name, values in zip(_FILTERS, json.loads(filters), strict=True):
                for value in values:
                    table.values.setdefault((name, value), []).append(place)
            table.size += 1
        return table


def _rows(
    connection: sqlite3.Connection, last: int
) -> Iterator[tuple[int, RevisionKey, str, Vector]]:
    """(number, key, filters, both vectors) of the rows above a number, in order."""
    rows = connection.execute(
        "SELECT number, skill_id, seq, filters, vector_hashes FROM revisions"
        " WHERE number > ? ORDER BY number",
        (last,),
    )
    for batch in batches(rows):
        hashes = [bytes(blob[i : i + HASH_BYTES]) for *_, blob in batch for i in (0, HASH_BYTES)]
        known = {
            bytes(text): dequantise(scale, data)
            for text, scale, data in _vectors(connection, hashes)
        }
        for place, (number, skill_id, seq, filters, _) in enumerate(batch):
            pair = np.stack([known[hashes[2 * place]], known[hashes[2 * place + 1]]])
            yield number, RevisionKey(skill_id, seq), filters, pair


def _vectors(
    connection: sqlite3.Connection, hashes: list[bytes]
) -> Iterator[tuple[bytes, float, bytes]]:
    wanted = list(dict.fromkeys(hashes))
    yield from connection.execute(
        f"SELECT hash, scale, data FROM vectors WHERE hash IN ({placeholders(len(wanted))})",  # noqa: S608  (only placeholders)
        wanted,
    )


def _allowed(table: _Table, size: int, filters: Filters) -> npt.NDArray[np.bool_] | None:
    """Which rows pass the filters; None when all do."""
    allowed: npt.NDArray[np.bool_] | None = None
    for name in _FILTERS:
        values = getattr(filters, name)
        if not values:
            continue
        passing = np.zeros(size, dtype=np.bool_)
        for value in values:
            places = table.values.get((name, value), ())
            passing[[place for place in places if place < size]] = True
        allowed = passing if allowed is None else allowed & passing
    return allowed
