"""The pack of all skill vectors, with binary codes, mapped into memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from search.binary_codes import likely_nearest
from search.local.packs.code_columns import code_columns, encode_columns, read_codes
from search.local.packs.column_pack import Derivation, NewRows, PackFormat
from search.local.packs.mapped_columns import Array, Block, Column, MappedColumns
from search.local.packs.packed_revisions import REVISION_COLUMNS, PackedRevisions, to_block
from search.local.vector_rows import RevisionVectors, read_skill_vectors, sample_skill_vectors
from search.protocol import Filters, Vector
from skills.record import RevisionKey

_FORMAT = 3
_FIELDS = ("described", "head")
_SAMPLED_REVISIONS = 1_000
_MAX_PASS_GROWTH = 6
"""Maximum ratio of all rows to rows to return at which a pass over all is as fast as gathering
some."""

_MAX_GROWTH = 2.0
"""Growth factor of the number of revisions at which the means of the codes are computed again."""


def vector_format(dimension: int) -> PackFormat:
    """Return the format of the pack of vectors of this length."""
    columns = [*REVISION_COLUMNS]
    for field in _FIELDS:
        columns += [Column(field, "<f4", dimension), *code_columns(dimension, f"{field}_")]
    return PackFormat(
        "vectors",
        f"{_FORMAT}.{dimension}",
        columns,
        _read_rows,
        "with_vectors",
        "position",
        Derivation(_choose_means, _encode, _MAX_GROWTH),
    )


def _read_rows(connection: sqlite3.Connection, after: int) -> Iterator[NewRows]:
    for some in read_skill_vectors(connection, after):
        yield NewRows(_to_block(some), some[-1].position)


def _to_block(revisions: Sequence[RevisionVectors[Vector]]) -> Block:
    block = to_block(revisions)
    pairs = np.stack([one.vectors for one in revisions], axis=1)
    return block._replace(values={**block.values, **dict(zip(_FIELDS, pairs, strict=True))})


def _choose_means(connection: sqlite3.Connection) -> Mapping[str, Array]:
    sampled = chain.from_iterable(sample_skill_vectors(connection, _SAMPLED_REVISIONS))
    means = np.mean([one.vectors for one in sampled], axis=0)
    return dict(zip(_FIELDS, means.astype(np.float32), strict=True))


def _encode(block: Block, constants: Mapping[str, Array]) -> Mapping[str, Array]:
    encoded: dict[str, Array] = {}
    for field in _FIELDS:
        vectors = block.values[field]
        there = np.asarray(vectors.any(axis=1), dtype=np.float32)
        encoded |= encode_columns(vectors, there, constants[field], f"{field}_")
    return encoded


class VectorPack(PackedRevisions):
    """Mapped skill vectors of the revisions in the table `with_vectors`."""

    def __init__(self, columns: MappedColumns) -> None:
        super().__init__(columns, "with_vectors")
        self._vectors: list[Vector] = [columns.values[field] for field in _FIELDS]
        self._codes = [
            read_codes(columns.values, columns.constants[field], f"{field}_") for field in _FIELDS
        ]

    def vectors(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, Vector]:
        """Return both vectors (2, dimension) of the given revisions that the pack has."""
        found, places = self.find(keys)
        pairs = np.stack([vectors[places] for vectors in self._vectors], axis=1)
        return dict(zip(found, pairs, strict=True))

    def pair_cosines(
        self, keys: Sequence[RevisionKey], vector: Vector
    ) -> dict[RevisionKey, tuple[float, float]]:
        """Return the cosines of a unit vector with both vectors of the given revisions that the
        pack has."""
        found, places = self.find(keys)
        pairs = (np.vecdot(vectors[places], vector).tolist() for vectors in self._vectors)
        return dict(zip(found, zip(*pairs, strict=True), strict=True))

    def cosines(
        self, vector: Vector, vector_field: int, count: int, filters: Filters
    ) -> tuple[npt.NDArray[np.intp], Vector]:
        """Return rows that are not removed and pass the filters, and their cosines with a unit
        vector.

        The rows are in any order and include the likely nearest `count`, or all if there are fewer.
        Cosines are float32.
        """
        passing, vectors = self.passing(filters), self._vectors[vector_field]
        # vecdot, not a matrix product: as fast, and leaves no BLAS threads spinning.
        if len(self) <= _MAX_PASS_GROWTH * count:
            rows = np.arange(len(self)) if passing is None else np.flatnonzero(passing)
            return rows, np.vecdot(vectors, vector)[rows]
        rows = likely_nearest(self._codes[vector_field], vector, len(self), count, passing)
        return rows, np.vecdot(vectors[rows], vector)
