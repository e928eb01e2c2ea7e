"""Reads of section vectors from the store, for those that keep them in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from search.batches import batches
from search.blob_codec import dequantise, quantise, unpack_filters, unpack_hashes
from search.local.revision_store import SQL_BATCH, select_vectors
from search.protocol import Filters
from skills.record import RevisionKey


class RevisionSections(NamedTuple):
    """The section vectors of a revision, int8 (sections, dimension) in any scale.

    position: in the order in which revisions got their section vectors.
    """

    position: int
    number: int
    key: RevisionKey
    filters: Filters
    vectors: npt.NDArray[np.int8]


def read_removed(
    connection: sqlite3.Connection, known: Mapping[int, RevisionKey], last: int
) -> list[int]:
    """Return the row numbers of those of the revisions that were deleted since.

    last: the position up to which `known` was read.
    """
    if not _has_table(connection):
        return []
    left = connection.execute("SELECT COUNT(*) FROM embedded WHERE position <= ?", (last,))
    if left.fetchone()[0] == len(known):
        return []
    numbers = connection.execute("SELECT number FROM embedded WHERE position <= ?", (last,))
    present = {number for (number,) in numbers}
    return [number for number in known if number not in present]


def read_embedded(
    connection: sqlite3.Connection, after: int, dimension: int
) -> Iterator[list[RevisionSections]]:
    """Yield the revisions that got section vectors after a position, some at a time."""
    if not _has_table(connection):
        return
    rows = connection.execute(
        "SELECT position, number, skill_id, seq, filters, section_hashes"
        " FROM embedded JOIN revisions USING (number) WHERE position > ? ORDER BY position",
        (after,),
    )
    for batch in batches(rows, SQL_BATCH):
        hashes = [unpack_hashes(blob) for *_, blob in batch]
        known = _read_int8(connection, {text for texts in hashes for text in texts})
        yield [
            RevisionSections(
                position,
                number,
                RevisionKey(skill_id, seq),
                unpack_filters(filters),
                np.frombuffer(b"".join(known[text] for text in texts), dtype=np.int8).reshape(
                    len(texts), dimension
                ),
            )
            for (position, number, skill_id, seq, filters, _), texts in zip(
                batch, hashes, strict=True
            )
        ]


def _read_int8(connection: sqlite3.Connection, hashes: set[bytes]) -> dict[bytes, bytes]:
    """Return vectors by text hash, quantised where they are stored exactly."""
    return {
        text: data if scale else quantise(dequantise(scale, data))[1]
        for text, scale, data in select_vectors(connection, hashes)
    }


def _has_table(connection: sqlite3.Connection) -> bool:
    """Whether a version that keeps this table has written the store."""
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'embedded'")
    return found.fetchone() is not None
