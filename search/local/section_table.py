"""Section vectors of revisions in memory, as int8, with codes once there are many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from search.binary_codes import BinaryCodes
from search.local.filter_places import FilterPlaces
from search.local.vector_rows import RevisionVectors
from search.protocol import Vector
from skills.record import RevisionKey

Int8Vectors = npt.NDArray[np.int8]

Blocks = Mapping[RevisionKey, tuple[int, int]]
"""First row and number of sections, by revision."""

_BLOCK_ROWS = 256
"""Rows converted to float32 at a time."""

_GROWTH = 1.25
"""Room of a new array, as a multiple of the rows in use."""


@dataclass(slots=True)
class SectionTable:
    """A snapshot of the sections in memory, those of a revision together.

    Rows below `size` never change, except that rows of removed revisions get the norm 0. owners:
    row -> place in `keys`. blocks: key -> first row and number of rows. coded: number of rows when
    the mean of the codes was computed.
    """

    vectors: Int8Vectors
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

    @classmethod
    def create(cls, room: int, dimension: int) -> SectionTable:
        """Return a table without rows."""
        return cls(
            vectors=np.empty((room, dimension), dtype=np.int8),
            inverse_norms=np.zeros(room, dtype=np.float32),
            owners=np.empty(room, dtype=np.int32),
        )

    def remove(self, number: int) -> None:
        """Remove a revision by its row number of the store."""
        start, count = self.blocks.pop(self.numbers.pop(number))
        self.inverse_norms[start : start + count] = 0.0
        if self.codes is not None:
            self.codes.offsets[start : start + count] = -np.inf
        self.dead += count

    def extended(self, revisions: Sequence[RevisionVectors[Int8Vectors]]) -> SectionTable:
        """Return a table with the rows of further revisions; shares the arrays that need not
        grow."""
        table = self._with_room(sum(len(one.vectors) for one in revisions))
        first = table.size
        for one in revisions:
            rows = slice(table.size, table.size + len(one.vectors))
            table.vectors[rows] = one.vectors
            table._add_revision(one.number, one.key, len(one.vectors))
            table.filters.add(len(table.keys) - 1, one.filters)
        fresh = slice(first, table.size)
        table.inverse_norms[fresh] = inverse_norms(table.vectors[fresh])
        if table.codes is not None:
            table.codes.encode(first, table.vectors[fresh], table.inverse_norms[fresh])
        return table

    def compacted(self) -> SectionTable:
        """Return a table without the rows of removed revisions, and without codes."""
        fresh = self.create(int((self.size - self.dead) * _GROWTH), self.vectors.shape[1])
        for number, key in self.numbers.items():
            start, count = self.blocks[key]
            rows, old = slice(fresh.size, fresh.size + count), slice(start, start + count)
            fresh.vectors[rows] = self.vectors[old]
            fresh.inverse_norms[rows] = self.inverse_norms[old]
            fresh._add_revision(number, key, count)
            fresh.filters.add(len(fresh.keys) - 1, self.filters.of(int(self.owners[start])))
        return fresh

    def _add_revision(self, number: int, key: RevisionKey, count: int) -> None:
        self.owners[self.size : self.size + count] = len(self.keys)
        self.keys.append(key)
        self.numbers[number] = key
        self.blocks[key] = (self.size, count)
        self.size += count

    def with_codes(self) -> SectionTable:
        """Return the same table with codes about the mean of its rows."""
        total = sum_units(self.vectors[: self.size], self.inverse_norms[: self.size])
        codes = BinaryCodes.create((total / self.size).astype(np.float32), len(self.vectors))
        codes.encode(0, self.vectors[: self.size], self.inverse_norms[: self.size])
        return replace(self, codes=codes, coded=self.size)

    def _with_room(self, added: int) -> SectionTable:
        """Return a table with room for more rows; shares the arrays that need not grow."""
        needed, room = self.size + added, len(self.vectors)
        if needed <= room:
            return replace(self)
        more = (int(needed * _GROWTH) if self.size else needed) - room
        codes = self.codes
        if codes is not None:
            codes = replace(
                codes,
                bits=[np.pad(word, (0, more)) for word in codes.bits],
                offsets=np.pad(codes.offsets, (0, more)),
                lengths=np.pad(codes.lengths, (0, more)),
            )
        return replace(
            self,
            vectors=np.concatenate(
                [self.vectors, np.empty((more, self.vectors.shape[1]), np.int8)]
            ),
            inverse_norms=np.pad(self.inverse_norms, (0, more)),
            owners=np.pad(self.owners, (0, more)),
            codes=codes,
        )


def inverse_norms(vectors: Int8Vectors) -> Vector:
    """Return 1 / the norm of each row, float32 (n,); 0 for a zero row."""
    norms = np.linalg.norm(vectors.astype(np.float32), axis=1)
    inverse = np.zeros(len(vectors), dtype=np.float32)
    np.divide(1.0, norms, out=inverse, where=norms > 0)
    return inverse


def sum_units(vectors: Int8Vectors, norms: Vector) -> npt.NDArray[np.float64]:
    """Return the sum of the unit vectors of rows, (dimension,). norms: 1 / the norm of each."""
    total = np.zeros(vectors.shape[1])
    for start in range(0, len(vectors), 8192):
        rows = slice(start, start + 8192)
        total += norms[rows] @ vectors[rows].astype(np.float32)
    return total


def unit_vectors(vectors: Int8Vectors, norms: Vector, rows: npt.NDArray[np.intp]) -> Vector:
    """Return these rows at unit length, float32; zero rows stay zero. norms: 1 / the norm of
    each."""
    return np.asarray(vectors[rows] * norms[rows, np.newaxis], dtype=np.float32)


def exact_cosines(
    vectors: Int8Vectors, norms: Vector, rows: npt.NDArray[np.intp], vector: Vector
) -> Vector:
    """Return the cosines of a unit vector with these rows, float32; 0 where the norm is 0."""
    products = np.empty(len(rows), dtype=np.float32)
    # Few rows at a time, which stay in the processor's cache.
    exact = np.empty((min(_BLOCK_ROWS, len(rows)), len(vector)), dtype=np.float32)
    for start in range(0, len(rows), _BLOCK_ROWS):
        some = rows[start : start + _BLOCK_ROWS]
        part = exact[: len(some)]
        np.copyto(part, vectors[some])
        # vecdot, not a matrix product: it leaves no BLAS threads spinning.
        np.vecdot(part, vector, out=products[start : start + len(some)])
    return np.asarray(products * norms[rows], dtype=np.float32)
