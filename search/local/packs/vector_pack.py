"""The pack of skill vectors: those of all revisions that have them, mapped into memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

import numpy as np

from search.local.packs.column_pack import NewRows, PackFormat
from search.local.packs.mapped_columns import Block, Column
from search.local.packs.packed_revisions import REVISION_COLUMNS, PackedRevisions, to_block
from search.local.vector_rows import RevisionVectors, read_skill_vectors
from search.protocol import Filters, Vector
from skills.record import RevisionKey

_FORMAT = 2
_FIELDS = ("described", "head")


def vector_format(dimension: int) -> PackFormat:
    """Return the format of the pack of vectors of this length."""
    vectors = (Column(field, "<f4", dimension) for field in _FIELDS)
    columns = (*REVISION_COLUMNS, *vectors)
    return PackFormat(
        "vectors", f"{_FORMAT}.{dimension}", columns, _read_rows, "with_vectors", "position"
    )


def _read_rows(connection: sqlite3.Connection, after: int) -> Iterator[NewRows]:
    for some in read_skill_vectors(connection, after):
        yield NewRows(_to_block(some), some[-1].position)


def _to_block(revisions: Sequence[RevisionVectors[Vector]]) -> Block:
    block = to_block(revisions)
    pairs = np.stack([one.vectors for one in revisions], axis=1)
    return block._replace(values={**block.values, **dict(zip(_FIELDS, pairs, strict=True))})


class VectorPack(PackedRevisions):
    """The skill vectors of the pack, with the table `with_vectors`."""

    def vectors(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, Vector]:
        """Return both vectors (2, dimension) of those of the revisions that are there."""
        found, places = self.find(keys)
        pairs = np.stack([self._columns.values[field][places] for field in _FIELDS], axis=1)
        return dict(zip(found, pairs, strict=True))

    def cosines(self, vector: Vector, vector_field: int, filters: Filters) -> Vector:
        """Return the cosine of a unit vector with each row, float32 (rows,); -inf for rows that are
        removed or do not pass the filters."""
        # vecdot, not a matrix product: as fast, and leaves no BLAS threads spinning.
        scores: Vector = np.vecdot(self._columns.values[_FIELDS[vector_field]], vector)
        passing = self.passing(filters)
        return scores if passing is None else np.where(passing, scores, np.float32(-np.inf))
