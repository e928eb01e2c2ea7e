"""The pack of skill vectors: those of all revisions that have them, mapped into memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from search.blob_codec import pack_filters, unpack_filters
from search.local.column_pack import NewRows, PackFormat
from search.local.filter_places import FilterPlaces
from search.local.key_index import KeyIndex, hash_key
from search.local.mapped_columns import Block, Column, MappedColumns
from search.local.vector_rows import RevisionVectors, list_numbers, read_skill_vectors
from search.protocol import Filters, Vector
from skills.record import RevisionKey

_FORMAT = 1


def vector_format(dimension: int) -> PackFormat:
    """Return the format of the pack of vectors of this length."""
    columns = (
        Column("number", "<i8"),
        Column("key_hash", "<u8"),
        Column("described", "<f4", dimension),
        Column("head", "<f4", dimension),
        Column("filters", "<u1", lists="filters"),
    )
    return PackFormat(
        "vectors", f"{_FORMAT}.{dimension}", columns, _read_rows, "with_vectors", "position"
    )


def _read_rows(connection: sqlite3.Connection, after: int) -> Iterator[NewRows]:
    for some in read_skill_vectors(connection, after):
        yield NewRows(_to_block(some), some[-1].position)


def _to_block(revisions: Sequence[RevisionVectors[Vector]]) -> Block:
    pairs = np.stack([one.vectors for one in revisions])
    filters = [pack_filters(one.filters).encode() for one in revisions]
    return Block(
        len(revisions),
        {
            "number": np.array([one.number for one in revisions]),
            "key_hash": np.frombuffer(b"".join(hash_key(one.key) for one in revisions), "<u8"),
            "described": pairs[:, 0],
            "head": pairs[:, 1],
            "filters": np.frombuffer(b"".join(filters), np.uint8),
        },
        {"filters": np.array([len(one) for one in filters])},
    )


class VectorPack:
    """The mapped rows, found by key. Threads may share it; one of them reads removals."""

    def __init__(self, columns: MappedColumns) -> None:
        self._columns = columns
        self._keys = KeyIndex(columns.values["key_hash"])
        self._filters: FilterPlaces | None = None
        self._live = np.ones(columns.rows, dtype=np.bool_)
        self._count = columns.rows

    def __len__(self) -> int:
        return self._columns.rows

    def read_removed(self, connection: sqlite3.Connection, last: int) -> None:
        """Leave the rows of deleted revisions out from now on. last: position of the last row."""
        present = list_numbers(connection, "with_vectors", last, unless=self._count)
        if present is not None:
            self._live = np.isin(self._columns.values["number"], present)
            self._count = len(present)

    def get_numbers(self, places: npt.NDArray[np.intp]) -> list[int]:
        """Return the row numbers of the store of these rows."""
        numbers: list[int] = self._columns.values["number"][places].tolist()
        return numbers

    def vectors(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, Vector]:
        """Return both vectors (2, dimension) of those of the revisions that are there."""
        places = self._keys.find(keys)
        found = np.flatnonzero(places >= 0)
        found = found[self._live[places[found]]]
        values = self._columns.values
        pairs = np.stack(
            [values["described"][places[found]], values["head"][places[found]]], axis=1
        )
        return {keys[at]: pair for at, pair in zip(found.tolist(), pairs, strict=True)}

    def cosines(self, vector: Vector, vector_field: int, filters: Filters) -> Vector:
        """Return the cosine of a unit vector with each row, float32 (rows,); -inf for rows that are
        removed or do not pass the filters."""
        # vecdot, not a matrix product: as fast, and leaves no BLAS threads spinning.
        scores = np.vecdot(self._columns.values[("described", "head")[vector_field]], vector)
        passing = self._live
        if filters != Filters():
            allowed = self._read_filters().allowed(len(self), filters)
            passing = passing if allowed is None else passing & allowed
        return np.where(passing, scores, np.float32(-np.inf))

    def _read_filters(self) -> FilterPlaces:
        """The filter values of all rows, read at the first search with filters."""
        if self._filters is None:
            found = FilterPlaces()
            text = self._columns.values["filters"].tobytes().decode()
            known: dict[str, Filters] = {}
            start = 0
            for place, end in enumerate(self._columns.ends["filters"].tolist()):
                one = text[start:end]
                found.add(place, known.get(one) or known.setdefault(one, unpack_filters(one)))
                start = end
            self._filters = found
        return self._filters
