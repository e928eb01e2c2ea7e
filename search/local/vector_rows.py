"""Reads of vectors from the store, for packs and for tables in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator
from typing import Generic, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from search.blob_codec import dequantise, quantise, unpack_filters, unpack_hashes
from search.local.revision_store import SQL_BATCH, select_vectors
from search.protocol import Filters, Vector
from skills.batches import batches
from skills.record import RevisionKey

Table = Literal["with_vectors", "embedded"]
"""Names of the tables that list the revisions with skill vectors, and those with section
vectors."""

V = TypeVar("V")


class RevisionVectors(NamedTuple, Generic[V]):
    """The skill vectors (2, dimension) or section vectors (sections, dimension) of a revision.

    position: rank in the order in which revisions got vectors.
    """

    position: int
    number: int
    key: RevisionKey
    filters: Filters
    vectors: V


def read_removed(
    connection: sqlite3.Connection,
    table: Table,
    known: Collection[int],
    last: int,
    after: int = 0,
) -> list[int]:
    """Return the row numbers in `known` whose revisions were deleted since.

    after, last: `known` was read from positions above `after` up to `last`.
    """
    numbers = list_numbers(connection, table, last, after, unless=len(known))
    if numbers is None:
        return []
    present = set(numbers)
    return [number for number in known if number not in present]


def list_numbers(
    connection: sqlite3.Connection, table: Table, last: int, after: int = 0, *, unless: int
) -> list[int] | None:
    """Return the row numbers at positions above `after` up to `last`; None if there are `unless` of
    them, which is checked first because it is faster."""
    between = f"FROM {table} WHERE position > ? AND position <= ?"
    count = connection.execute(f"SELECT COUNT(*) {between}", (after, last)).fetchone()[0]
    if count == unless:
        return None
    return [number for (number,) in connection.execute(f"SELECT number {between}", (after, last))]


def read_skill_vectors(
    connection: sqlite3.Connection, after: int, step: int = 1
) -> Iterator[list[RevisionVectors[Vector]]]:
    """Yield the revisions that got skill vectors after a position, some at a time; float32.

    step: read only one of every `step` revisions.
    """
    for rows, hashes in _read_rows(connection, "with_vectors", "vector_hashes", after, step):
        known = {
            text: dequantise(scale, data)
            for text, scale, data in select_vectors(connection, _flatten(hashes))
        }
        yield [
            RevisionVectors(*row, np.stack([known[text] for text in texts]))
            for row, texts in zip(rows, hashes, strict=True)
        ]


def read_section_vectors(
    connection: sqlite3.Connection, after: int, dimension: int, step: int = 1
) -> Iterator[list[RevisionVectors[npt.NDArray[np.int8]]]]:
    """Yield the revisions that got section vectors after a position, some at a time; int8, in any
    scale. step: read only one of every `step` revisions."""
    for rows, hashes in _read_rows(connection, "embedded", "section_hashes", after, step):
        known = _read_int8(connection, _flatten(hashes))
        yield [
            RevisionVectors(
                *row,
                np.frombuffer(b"".join(known[text] for text in texts), dtype=np.int8).reshape(
                    len(texts), dimension
                ),
            )
            for row, texts in zip(rows, hashes, strict=True)
        ]


def sample_section_vectors(
    connection: sqlite3.Connection, count: int, dimension: int
) -> Iterator[list[RevisionVectors[npt.NDArray[np.int8]]]]:
    """Yield about `count` of the revisions with section vectors, spread over all of them."""
    return read_section_vectors(connection, 0, dimension, _step(connection, "embedded", count))


def sample_skill_vectors(
    connection: sqlite3.Connection, count: int
) -> Iterator[list[RevisionVectors[Vector]]]:
    """Yield about `count` of the revisions with skill vectors, spread over all of them."""
    return read_skill_vectors(connection, 0, _step(connection, "with_vectors", count))


def _step(connection: sqlite3.Connection, table: Table, count: int) -> int:
    """Return the step with which about `count` rows of a table are read."""
    (stored,) = connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()  # noqa: S608 - a constant
    return max(int(stored) // count, 1)


def _flatten(hashes: Iterable[Iterable[bytes]]) -> set[bytes]:
    return {text for texts in hashes for text in texts}


def _read_rows(
    connection: sqlite3.Connection, table: Table, column: str, after: int, step: int = 1
) -> Iterator[tuple[list[tuple[int, int, RevisionKey, Filters]], list[tuple[bytes, ...]]]]:
    """Yield batches of rows (position, number, key, filters), with the text hashes of each row."""
    sampled = f" AND {_sampled(table, step)}" if step > 1 else ""
    statement = (
        f"SELECT position, number, skill_id, seq, filters, {column}"  # noqa: S608 - constants
        f" FROM {table} JOIN revisions USING (number)"
        f" WHERE position > ?{sampled} ORDER BY position"
    )
    known: dict[str, Filters] = {}
    for batch in batches(connection.execute(statement, (after,)), SQL_BATCH):
        rows: list[tuple[int, int, RevisionKey, Filters]] = []
        for position, number, skill_id, seq, filters, _ in batch:
            # Most skills share their filters with others.
            shared = known.get(filters) or known.setdefault(filters, unpack_filters(filters))
            rows.append((position, number, RevisionKey(skill_id, seq), shared))
        yield rows, [unpack_hashes(blob) for *_, blob in batch]


def _sampled(table: Table, step: int) -> str:
    """Return an SQL condition that every `step`-th row fulfils, counted by order."""
    places = f"SELECT position, ROW_NUMBER() OVER (ORDER BY position) AS place FROM {table}"  # noqa: S608 - constants
    return f"position IN (SELECT position FROM ({places}) WHERE place % {step} = 0)"  # noqa: S608 - constants


def _read_int8(connection: sqlite3.Connection, hashes: set[bytes]) -> dict[bytes, bytes]:
    """Return vectors by text hash, quantised where they are stored exactly."""
    return {
        text: data if scale else quantise(dequantise(scale, data))[1]
        for text, scale, data in select_vectors(connection, hashes)
    }
