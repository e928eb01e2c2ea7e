"""Nearest sections of the embedded index: the section vectors of every revision, as int8.

Binary codes find the likely nearest sections; their cosines are then computed from the stored
vectors, so that every score is exact. Up to EXACT_ROWS sections all are compared.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from search.binary_codes import likely_nearest
from search.local.packs.column_pack import PackRecord, map_pack, read_record
from search.local.packs.packed_revisions import read_keys
from search.local.packs.section_pack import SectionPack, section_format
from search.local.revision_store import RevisionStore
from search.local.section_table import Blocks, SectionTable, exact_cosines, unit_vectors
from search.local.store_follower import StoreFollower
from search.local.vector_rows import read_removed, read_section_vectors
from search.protocol import Filters, Vector
from skills.record import RevisionKey

EXACT_ROWS = 8192
"""Minimum number of sections whose cosines a search computes. Of 197,000 sections they hold .99 of
the nearest 50 skills and .96 of the nearest 300 (`tests/bench/sections.py`)."""

_ROWS_PER_HIT = 10
"""Sections compared for each requested skill, if that is more than EXACT_ROWS."""

_WIDEN = 4
"""Factor on the number of compared sections when they belong to too few skills."""

_MAX_DEAD_SHARE = 0.25
"""Share of rows of removed revisions from which a table is compacted."""

_RECODE_GROWTH = 2
"""Growth factor of the number of rows at which the mean of the codes is computed again."""


class _Nearest(NamedTuple):
    """Best cosine of each found revision.

    places: of the revisions in a view. complete: whether these are all revisions that pass the
    filters.
    """

    places: npt.NDArray[np.intp]
    cosines: Vector
    complete: bool


class _View(NamedTuple):
    """Snapshot that a search reads: the sections of the pack, then those in memory."""

    pack: SectionPack | None
    table: SectionTable

    @property
    def packed(self) -> int:
        """Number of revisions in the pack."""
        return 0 if self.pack is None else len(self.pack)

    def find_nearest(self, vector: Vector, count: int, filters: Filters) -> _Nearest:
        """Compare at least the likely nearest `count` sections, or all if there are fewer; best
        first."""
        parts = [self._nearest_in_memory(vector, count, filters)]
        if self.pack is not None:
            passing = self.pack.passing_sections(filters)
            rows = likely_nearest(self.pack.codes, vector, self.pack.sections, count, passing)
            cosines = self.pack.cosines(rows, vector)
            owners = self.pack.owners(rows)
            parts.append(_Nearest(*_best_by_owner(owners, cosines), len(rows) < count))
        places = np.concatenate([part.places for part in parts])
        cosines = np.concatenate([part.cosines for part in parts])
        order = np.lexsort((places, -cosines))
        order = order[cosines[order] > 0.0]
        return _Nearest(places[order], cosines[order], all(part.complete for part in parts))

    def _nearest_in_memory(self, vector: Vector, count: int, filters: Filters) -> _Nearest:
        table = self.table
        allowed = table.filters.allowed(len(table.keys), filters)
        passing = None if allowed is None else allowed[table.owners[: table.size]]
        rows = likely_nearest(table.codes, vector, table.size, count, passing)
        cosines = exact_cosines(table.vectors, table.inverse_norms, rows, vector)
        owners, best = _best_by_owner(table.owners[rows], cosines)
        return _Nearest(owners + self.packed, best, len(rows) < count)

    def keys(self, places: npt.NDArray[np.intp]) -> list[RevisionKey]:
        """Return the revisions at places."""
        return read_keys(self.pack, self.table.keys, places)

    def blocks(self, keys: Sequence[RevisionKey]) -> tuple[Blocks, Blocks]:
        """Return the blocks of the given revisions that have sections: in memory, and in the
        pack."""
        table = self.table
        recent = {
            key: block
            for key in keys
            if (block := table.blocks.get(key)) is not None and sum(block) <= table.size
        }
        if self.pack is None:
            return recent, {}
        return recent, self.pack.blocks([key for key in keys if key not in recent])

    def vectors(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, Vector]:
        """Return the unit vectors of the sections of each revision that has them."""
        recent, packed = self.blocks(keys)
        table = self.table
        rows = unit_vectors(table.vectors, table.inverse_norms, _rows_of(recent))
        found = _split(recent, rows)
        if self.pack is not None:
            found |= _split(packed, self.pack.vectors(_rows_of(packed)))
        return found

    def best_cosines(self, keys: Sequence[RevisionKey], vector: Vector) -> dict[RevisionKey, float]:
        """Return the best cosine of a section of each revision that has section vectors."""
        recent, packed = self.blocks(keys)
        table = self.table
        cosines = exact_cosines(table.vectors, table.inverse_norms, _rows_of(recent), vector)
        found = _best_of_blocks(recent, cosines)
        if self.pack is not None:
            found |= _best_of_blocks(packed, self.pack.cosines(_rows_of(packed), vector))
        return found


class SectionMatrix(StoreFollower):
    """Section vectors of all embedded revisions, mapped or in memory.

    Vectors in the pack are mapped; vectors that the pack lacks are in memory, or all vectors if
    there is no usable pack. packs: folder of the packs.
    """

    def __init__(self, store: RevisionStore, packs: Path, dimension: int) -> None:
        super().__init__(store)
        self._packs = packs
        self._format = section_format(dimension)
        self._dimension = dimension
        self._record: PackRecord | None = None
        self._view = _View(None, SectionTable.create(0, dimension))
        self._position = 0

    def find_nearest(
        self, vector: Vector, limit: int, filters: Filters
    ) -> list[tuple[RevisionKey, float]]:
        """Return (revision, best cosine of a section) of the `limit` nearest skills, best first."""
        if limit < 1:
            return []
        view, vector = self._view, np.asarray(vector, dtype=np.float32)
        rows = max(EXACT_ROWS, _ROWS_PER_HIT * limit)
        while True:
            near = view.find_nearest(vector, rows, filters)
            found, skills = self._take_skills(view, near, limit)
            if skills >= limit or near.complete:
                return found
            rows *= _WIDEN

    def _take_skills(
        self, view: _View, near: _Nearest, limit: int
    ) -> tuple[list[tuple[RevisionKey, float]], int]:
        """Return the revisions of the first `limit` skills, and the number of these skills.

        Several revisions of one skill count once.
        """
        found: list[tuple[RevisionKey, float]] = []
        skills: set[str] = set()
        for start in range(0, len(near.places), limit):
            part = slice(start, start + limit)
            keys = view.keys(near.places[part])
            for key, cosine in zip(keys, near.cosines[part].tolist(), strict=True):
                if key.skill_id not in skills and len(skills) == limit:
                    return found, limit
                skills.add(key.skill_id)
                found.append((key, cosine))
        return found, len(skills)

    def best_cosines(self, keys: Sequence[RevisionKey], vector: Vector) -> dict[RevisionKey, float]:
        """Return the best cosine of a section of each revision that has section vectors."""
        return self._view.best_cosines(keys, np.asarray(vector, dtype=np.float32))

    def vectors(self, keys: Sequence[RevisionKey]) -> dict[RevisionKey, Vector]:
        """Return the unit vectors (sections, dimension) of each revision that has them."""
        return self._view.vectors(keys)

    # -- following the store

    @override
    def _load_changes(self) -> None:
        super()._load_changes()
        table = self._view.table
        if table.dead > max(_MAX_DEAD_SHARE * table.size, EXACT_ROWS):
            table = table.compacted()
        # Codes are made once there are more rows than are compared anyway.
        if table.size > max(EXACT_ROWS, _RECODE_GROWTH * table.coded):
            table = table.with_codes()
        self._view = self._view._replace(table=table)

    @override
    def _read(self, connection: sqlite3.Connection) -> None:
        record = read_record(connection, self._format)
        if record != self._record:
            columns = map_pack(self._packs, self._format, record)
            pack = None if columns is None else SectionPack(columns)
            self._record = record
            self._view = _View(pack, SectionTable.create(0, self._dimension))
            self._position = record.last if record and pack else 0
        pack, table = self._view
        packed = self._record.last if self._record and pack else 0
        if pack is not None:
            pack.read_removed(connection, packed)
        for number in read_removed(connection, "embedded", table.numbers, self._position, packed):
            table.remove(number)
        for some in read_section_vectors(connection, self._position, self._dimension):
            self._view = _View(pack, self._view.table.extended(some))
            self._position = some[-1].position


def _best_by_owner(
    owners: npt.NDArray[np.integer], cosines: Vector
) -> tuple[npt.NDArray[np.intp], Vector]:
    """Return each owner once, with its best cosine."""
    order = np.lexsort((-cosines, owners))
    first = np.flatnonzero(np.diff(owners[order], prepend=-1))
    return owners[order[first]].astype(np.intp), cosines[order[first]]


def _rows_of(blocks: Blocks) -> npt.NDArray[np.intp]:
    """Return the rows of blocks (first row, number of rows), one block after the other."""
    starts, counts = np.array(list(blocks.values()), dtype=np.intp).reshape(-1, 2).T
    offsets = np.cumsum(counts) - counts
    return np.repeat(starts - offsets, counts) + np.arange(counts.sum())


def _split(blocks: Blocks, rows: Vector) -> dict[RevisionKey, Vector]:
    """Return the rows of each block; `rows` holds those of all blocks, one block after the
    other."""
    counts = np.array([count for _, count in blocks.values()], dtype=np.intp)
    return dict(zip(blocks, np.split(rows, np.cumsum(counts)), strict=False))


def _best_of_blocks(blocks: Blocks, cosines: Vector) -> dict[RevisionKey, float]:
    if not blocks:
        return {}
    counts = np.array([count for _, count in blocks.values()])
    best = np.maximum.reduceat(cosines, np.cumsum(counts) - counts)
    return dict(zip(blocks, best.tolist(), strict=True))
