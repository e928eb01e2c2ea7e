"""The pack of section vectors: int8, with binary codes, mapped into memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from search.local.packs.code_columns import code_columns, encode_columns, read_codes
from search.local.packs.column_pack import Derivation, NewRows, PackFormat
from search.local.packs.mapped_columns import Array, Block, Column, MappedColumns
from search.local.packs.packed_revisions import REVISION_COLUMNS, PackedRevisions, to_block
from search.local.section_table import (
    Blocks,
    Int8Vectors,
    exact_cosines,
    inverse_norms,
    sum_units,
    unit_vectors,
)
from search.local.vector_rows import (
    RevisionVectors,
    read_section_vectors,
    sample_section_vectors,
)
from search.protocol import Filters, Vector
from skills.record import RevisionKey

_FORMAT = 2
_SAMPLED_REVISIONS = 1_000
_MAX_GROWTH = 2.0
"""Growth factor of the number of revisions at which the mean of the codes is computed again."""


def section_format(dimension: int) -> PackFormat:
    """Return the format of the pack of section vectors of this length."""
    columns = (
        *REVISION_COLUMNS,
        Column("sections", "|i1", dimension, lists="sections"),
        Column("inverse_norms", "<f4", lists="sections"),
        *code_columns(dimension, lists="sections"),
    )

    def read_rows(connection: sqlite3.Connection, after: int) -> Iterator[NewRows]:
        for some in read_section_vectors(connection, after, dimension):
            yield NewRows(_to_block(some), some[-1].position)

    def choose_mean(connection: sqlite3.Connection) -> Mapping[str, Array]:
        sampled = sample_section_vectors(connection, _SAMPLED_REVISIONS, dimension)
        vectors = np.concatenate([one.vectors for one in chain.from_iterable(sampled)])
        total = sum_units(vectors, inverse_norms(vectors))
        return {"mean": (total / len(vectors)).astype(np.float32)}

    derivation = Derivation(choose_mean, _encode, _MAX_GROWTH)
    return PackFormat(
        "sections",
        f"{_FORMAT}.{dimension}",
        columns,
        read_rows,
        "embedded",
        "position",
        derivation,
    )


def _to_block(revisions: Sequence[RevisionVectors[Int8Vectors]]) -> Block:
    block = to_block(revisions)
    vectors = np.concatenate([one.vectors for one in revisions])
    values = {"sections": vectors, "inverse_norms": inverse_norms(vectors)}
    sizes = np.array([len(one.vectors) for one in revisions])
    return Block(block.rows, {**block.values, **values}, {**block.lengths, "sections": sizes})


def _encode(block: Block, constants: Mapping[str, Array]) -> Mapping[str, Array]:
    values = block.values
    return encode_columns(values["sections"], values["inverse_norms"], constants["mean"])


class SectionPack(PackedRevisions):
    """Mapped section vectors of the revisions in the table `embedded`."""

    def __init__(self, columns: MappedColumns) -> None:
        super().__init__(columns, "embedded")
        values = columns.values
        self._vectors: Int8Vectors = values["sections"]
        self._norms: Vector = values["inverse_norms"]
        self.codes = read_codes(values, columns.constants["mean"])

    @property
    def sections(self) -> int:
        """Number of sections, those of removed revisions included."""
        return len(self._vectors)

    def passing_sections(self, filters: Filters) -> npt.NDArray[np.bool_] | None:
        """Return a mask of the sections whose revisions are not removed and pass the filters,
        (sections,); None if all do."""
        passing = self.passing(filters)
        if passing is None:
            return None
        return np.repeat(passing, np.diff(self._columns.ends["sections"], prepend=0))

    def vectors(self, rows: npt.NDArray[np.intp]) -> Vector:
        """Return the unit vectors of these sections, float32; a zero vector stays zero."""
        return unit_vectors(self._vectors, self._norms, rows)

    def cosines(self, rows: npt.NDArray[np.intp], vector: Vector) -> Vector:
        """Return the cosines of a unit vector with these sections, float32."""
        return exact_cosines(self._vectors, self._norms, rows, vector)

    def owners(self, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Return the place of the revision of each section."""
        return self._columns.ends["sections"].searchsorted(rows, side="right")

    def blocks(self, keys: Sequence[RevisionKey]) -> Blocks:
        """Return the blocks of sections of the given revisions that the pack has."""
        found, places = self.find(keys)
        starts, ends = self._columns.bounds("sections", places)
        blocks = np.stack([starts, ends - starts], axis=1).tolist()
        return {key: (start, count) for key, (start, count) in zip(found, blocks, strict=True)}
