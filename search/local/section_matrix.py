"""Nearest sections of the embedded index: the section vectors of every revision, as int8.

Binary codes find the likely nearest sections; their cosines are then computed from the stored
vectors, so that every score is exact. Up to EXACT_ROWS sections all are compared.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from search.binary_codes import BinaryCodes
from search.local.filter_places import FilterPlaces
from search.local.revision_store import RevisionStore
from search.local.store_follower import StoreFollower
from search.local.vector_rows import RevisionVectors, read_removed, read_section_vectors
from search.protocol import Filters, Vector
from skills.record import RevisionKey

EXACT_ROWS = 8192
"""Sections whose cosines are computed in a search, at least. Of 197,000 they hold .99 of the
nearest 50 skills and .96 of the nearest 300 (`tests/bench/sections.py`)."""

_BLOCK_ROWS = 256
_ROWS_PER_HIT = 10
_WIDEN = 4
_GROWTH = 1.25
_MAX_DEAD_SHARE = 0.25
_RECODE_GROWTH = 2
"""The mean of the codes is computed again when there are this many times the rows."""


@dataclass(slots=True)
class _Table:
    """A snapshot of the sections in memory, those of a revision together.

    Rows below `size` never change, but that those of removed revisions get the norm 0. owners:
    row -> place in `keys`. blocks: key -> first row and number of rows. coded: rows when the mean
    of the codes was computed.
    """

    vectors: npt.NDArray[np.int8]
    inverse_norms: Vector
    owners: npt.NDArray[np.int32]
    keys: list[RevisionKey] = field(default_factory=list)
    filters: FilterPlaces = field(default_factory=FilterPlaces)
    numbers: dict[int, RevisionKey] = field(default_factory=dict)
    blocks: dict[RevisionKey, tuple[int, int]] = field(default_factory=dict)
    codes: BinaryCodes | None = None
    coded: int = 0
    size: int = 0
    dead: int = 0

    def cosines(self, rows: npt.NDArray[np.intp], vector: Vector) -> Vector:
        """Exact cosines of a unit vector with these rows; 0 for those of removed revisions."""
        products = np.empty(len(rows), dtype=np.float32)
        # Few rows at a time, which stay in the processor's cache.
        exact = np.empty((min(_BLOCK_ROWS, len(rows)), len(vector)), dtype=np.float32)
        for start in range(0, len(rows), _BLOCK_ROWS):
            some = rows[start : start + _BLOCK_ROWS]
            part = exact[: len(some)]
            np.copyto(part, self.vectors[some])
            # vecdot, not a matrix product: it leaves no BLAS threads spinning.
            np.vecdot(part, vector, out=products[start : start + len(some)])
        return np.asarray(products * self.inverse_norms[rows], dtype=np.float32)


class SectionMatrix(StoreFollower):
    """The section vectors of the revisions that have them."""

    def __init__(self, store: RevisionStore, dimension: int) -> None:
        super().__init__(store)
        self._dimension = dimension
        self._table = self._empty(0)
        self._position = 0

    def _empty(self, room: int) -> _Table:
        return _Table(
            vectors=np.empty((room, self._dimension), dtype=np.int8),
            inverse_norms=np.zeros(room, dtype=np.float32),
            owners=np.empty(room, dtype=np.int32),
        )

    def find_nearest(
        self, vector: Vector, limit: int, filters: Filters
    ) -> list[tuple[RevisionKey, float]]:
        """Return (revision, best cosine of a section) of the `limit` nearest skills, best first."""
        table, vector = self._table, np.asarray(vector, dtype=np.float32)
        if limit < 1 or not table.size:
            return []
        allowed = table.filters.allowed(len(table.keys), filters)
        rows = max(EXACT_ROWS, _ROWS_PER_HIT * limit)
        while True:
            near = _likely_nearest(table, vector, rows, allowed)
            found, skills = _best_of_skills(table, near, vector, limit)
            if skills >= limit or len(near) < rows:
                return found
            rows *= _WIDEN

    def best_cosines(self, keys: Sequence[RevisionKey], vector: Vector) -> dict[RevisionKey, float]:
        """Return the best cosine of a section of each revision that is in memory."""
        table, vector = self._table, np.asarray(vector, dtype=np.float32)
        blocks = {
            key: block
            for key in keys
            if (block := table.blocks.get(key)) is not None and sum(block) <= table.size
        }
        if not blocks:
            return {}
        starts, counts = np.array(list(blocks.values())).T
        offsets = np.cumsum(counts) - counts
        rows = np.repeat(starts - offsets, counts) + np.arange(counts.sum())
        best = np.maximum.reduceat(table.cosines(rows, vector), offsets)
        return dict(zip(blocks, best.tolist(), strict=True))

    # -- following the store

    @override
    def _load_changes(self) -> None:
        super()._load_changes()
        self._compact()
        self._code()

    @override
    def _read(self, connection: sqlite3.Connection) -> None:
        for number in read_removed(connection, "embedded", self._table.numbers, self._position):
            self._remove(number)
        for some in read_section_vectors(connection, self._position, self._dimension):
            self._append(some)
            self._position = some[-1].position

    def _remove(self, number: int) -> None:
        table = self._table
        start, count = table.blocks.pop(table.numbers.pop(number))
        table.inverse_norms[start : start + count] = 0.0
        if table.codes is not None:
            table.codes.offsets[start : start + count] = -np.inf
        table.dead += count

    def _append(self, revisions: Sequence[RevisionVectors[npt.NDArray[np.int8]]]) -> None:
        """Add the rows of revisions; arrays are shared with the table before, unless they grow."""
        added = sum(len(one.vectors) for one in revisions)
        table = _with_room(self._table, added)
        first = table.size
        for one in revisions:
            rows = slice(table.size, table.size + len(one.vectors))
            table.vectors[rows] = one.vectors
            table.owners[rows] = len(table.keys)
            table.filters.add(len(table.keys), one.filters)
            table.keys.append(one.key)
            table.numbers[one.number] = one.key
            table.blocks[one.key] = (table.size, len(one.vectors))
            table.size = rows.stop
        fresh = slice(first, table.size)
        norms = np.linalg.norm(table.vectors[fresh].astype(np.float32), axis=1)
        np.divide(1.0, norms, out=table.inverse_norms[fresh], where=norms > 0)
        if table.codes is not None:
            table.codes.encode(first, table.vectors[fresh], table.inverse_norms[fresh])
        self._table = table

    def _compact(self) -> None:
        """Move the rows together when many are of removed revisions."""
        table = self._table
        if table.dead <= max(_MAX_DEAD_SHARE * table.size, EXACT_ROWS):
            return
        fresh = self._empty(int((table.size - table.dead) * _GROWTH))
        for number, key in table.numbers.items():
            start, count = table.blocks[key]
            rows, old = slice(fresh.size, fresh.size + count), slice(start, start + count)
            fresh.vectors[rows] = table.vectors[old]
            fresh.inverse_norms[rows] = table.inverse_norms[old]
            fresh.owners[rows] = len(fresh.keys)
            fresh.filters.add(len(fresh.keys), table.filters.of(int(table.owners[start])))
            fresh.keys.append(key)
            fresh.numbers[number] = key
            fresh.blocks[key] = (fresh.size, count)
            fresh.size = rows.stop
        self._table = fresh

    def _code(self) -> None:
        """Make the codes, once there are more rows than are compared anyway."""
        table = self._table
        if table.size <= max(EXACT_ROWS, _RECODE_GROWTH * table.coded):
            return
        total = np.zeros(self._dimension)
        for start in range(0, table.size, EXACT_ROWS):
            rows = slice(start, min(start + EXACT_ROWS, table.size))
            total += table.inverse_norms[rows] @ table.vectors[rows].astype(np.float32)
        codes = BinaryCodes.create((total / table.size).astype(np.float32), len(table.vectors))
        codes.encode(0, table.vectors[: table.size], table.inverse_norms[: table.size])
        self._table = replace(table, codes=codes, coded=table.size)


def _with_room(old: _Table, added: int) -> _Table:
    """A table that has room for more rows; shares what it can with the old one."""
    needed, room = old.size + added, len(old.vectors)
    if needed <= room:
        return replace(old)
    more = (int(needed * _GROWTH) if old.size else needed) - room
    codes = old.codes
    if codes is not None:
        codes = replace(
            codes,
            bits=np.pad(codes.bits, ((0, 0), (0, more))),
            offsets=np.pad(codes.offsets, (0, more)),
            lengths=np.pad(codes.lengths, (0, more)),
        )
    return replace(
        old,
        vectors=np.concatenate([old.vectors, np.empty((more, old.vectors.shape[1]), np.int8)]),
        inverse_norms=np.pad(old.inverse_norms, (0, more)),
        owners=np.pad(old.owners, (0, more)),
        codes=codes,
    )


def _likely_nearest(
    table: _Table, vector: Vector, count: int, allowed: npt.NDArray[np.bool_] | None
) -> npt.NDArray[np.intp]:
    """The `count` allowed rows with the best estimates, or all of them if there are fewer."""
    size = table.size
    passing = None if allowed is None else allowed[table.owners[:size]]
    total = size if passing is None else int(passing.sum())
    if total < count or table.codes is None:
        return np.arange(size) if passing is None else np.flatnonzero(passing)
    estimates = table.codes.estimate(vector, size)
    if passing is not None:
        estimates[~passing] = -np.inf
    return np.argpartition(-estimates, count - 1)[:count]


def _best_of_skills(
    table: _Table, rows: npt.NDArray[np.intp], vector: Vector, limit: int
) -> tuple[list[tuple[RevisionKey, float]], int]:
    """The best cosine of each revision of the first `limit` skills, and how many skills these are.

    Revisions of one skill do not take each other's place.
    """
    cosines = table.cosines(rows, vector)
    found: dict[RevisionKey, float] = {}
    skills: set[str] = set()
    for at in np.lexsort((rows, -cosines)).tolist():
        cosine = float(cosines[at])
        key = table.keys[table.owners[rows[at]]]
        if cosine <= 0.0:
            break
        if key.skill_id not in skills:
            if len(skills) == limit:
                break
            skills.add(key.skill_id)
        found.setdefault(key, cosine)
    return list(found.items()), len(skills)
