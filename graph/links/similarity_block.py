"""Blocks of the similarity index: term vectors of some skills, searched for similar skills.

Body terms are stored by term, since a search reads few terms. Description terms are stored by
skill, since they are compared only for similar bodies and equal names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graph.links.link_rules import (
    WEIGHT_STEPS,
    Booleans,
    Floats,
    QuantisedVector,
    quantise_vector,
)
from graph.records import LinkFeatures, LinkType
from graph.skill_names import normalise_name

Rows = npt.NDArray[np.int64]
"""Row numbers of a block."""

ListKey = tuple[LinkType, str]
"""Key of a skill's list of links: their type, and the audience of the skills in the list."""

Texts = npt.NDArray[np.object_]
"""Strings, one per row."""

MAX_ROWS = 16384
"""Maximum rows of a block. Larger blocks take longer to merge; more blocks take longer to search,
since each needs a dozen calls of numpy per skill. Row numbers fit the type of `_owners`."""


class Member:
    """Name and quantised vectors of one skill."""

    __slots__ = ("body", "description", "name", "skill_id")

    def __init__(self, features: LinkFeatures) -> None:
        self.skill_id = features.skill_id
        self.name = normalise_name(features.name)
        self.body = quantise_vector(features.body_terms)
        self.description = quantise_vector(features.description_terms)


@dataclass(frozen=True, slots=True)
class _Terms:
    """Entries of several sparse vectors: term, number of the vector, weight in steps."""

    terms: npt.NDArray[np.uint64]
    owners: npt.NDArray[np.int64]
    weights: npt.NDArray[np.uint16]

    @staticmethod
    def of(vectors: Sequence[QuantisedVector]) -> _Terms:
        """Collect the entries of vectors, numbered in this order."""
        lengths = [len(terms) for terms, _ in vectors]
        return _Terms(
            np.concatenate([np.empty(0, np.uint64), *(terms for terms, _ in vectors)]),
            np.repeat(np.arange(len(vectors)), lengths),
            np.concatenate([np.empty(0, np.uint16), *(weights for _, weights in vectors)]),
        )

    @staticmethod
    def join(parts: Sequence[_Terms]) -> _Terms:
        """Concatenate the entries of all parts."""
        return _Terms(
            np.concatenate([part.terms for part in parts]),
            np.concatenate([part.owners for part in parts]),
            np.concatenate([part.weights for part in parts]),
        )

    def moved(self, rows: Rows) -> _Terms:
        """Renumber the vectors; vectors with a new number below 0 are dropped."""
        owners = rows[self.owners]
        kept = owners >= 0
        return _Terms(self.terms[kept], owners[kept], self.weights[kept])


class Block:
    """Names and vectors of some skills, one per row; searches skip dropped rows.

    For each list, the block also has the minimum weight of a link to enter the list of each row's
    skill; it is 0 while the list has room.
    """

    def __init__(
        self, ids: Sequence[str], names: Sequence[str], bodies: _Terms, descriptions: _Terms
    ) -> None:
        self.ids, self.names = np.array(ids, dtype=object), np.array(names, dtype=object)
        self._entry_weights: dict[ListKey, Floats] = {}
        self.alive = np.ones(len(ids), dtype=bool)
        self.live = len(ids)
        self._rows = {skill_id: row for row, skill_id in enumerate(ids)}
        self._named: dict[str, list[int]] = {}
        for row, name in enumerate(names):
            self._named.setdefault(name, []).append(row)
        self._bodies = _Inverted(bodies)
        self._descriptions = _ByRow(descriptions, len(ids))

    @staticmethod
    def of(members: Sequence[Member]) -> Block:
        """Create a block of at most MAX_ROWS skills."""
        return Block(
            [one.skill_id for one in members],
            [one.name for one in members],
            _Terms.of([one.body for one in members]),
            _Terms.of([one.description for one in members]),
        )

    @staticmethod
    def merge(blocks: Sequence[Block]) -> Block:
        """Merge the live rows of several blocks, at most MAX_ROWS, into one block."""
        ids: list[str] = []
        names: list[str] = []
        bodies, descriptions = [], []
        for block in blocks:
            left = np.flatnonzero(block.alive)
            rows = np.full(len(block.ids), -1)
            rows[left] = len(ids) + np.arange(len(left))
            ids += block.ids[left].tolist()
            names += block.names[left].tolist()
            bodies.append(block._bodies.read().moved(rows))
            descriptions.append(block._descriptions.read().moved(rows))
        merged = Block(ids, names, _Terms.join(bodies), _Terms.join(descriptions))
        for key in {key for block in blocks for key in block._entry_weights}:
            left_weights = [block.get_entry_weights(key)[block.alive] for block in blocks]
            merged._entry_weights[key] = np.concatenate(left_weights)
        return merged

    def get_entry_weights(self, key: ListKey) -> Floats:
        """Return the minimum weight to enter this list of each row's skill, float64 (rows,)."""
        weights = self._entry_weights.get(key)
        return np.zeros(len(self.ids)) if weights is None else weights

    def set_entry_weight(self, key: ListKey, skill_id: str, weight: float) -> None:
        """Set the minimum weight to enter a list of the skill, if it is in this block."""
        row = self._rows.get(skill_id)
        if row is not None:
            if key not in self._entry_weights:
                self._entry_weights[key] = np.zeros(len(self.ids))
            self._entry_weights[key][row] = weight

    def place_in(self, rows: Rows, skill_id: str) -> int | None:
        """Return the index of the skill's row in ascending rows; None if it is not among them."""
        row = self._rows.get(skill_id)
        place = 0 if row is None else int(np.searchsorted(rows, row))
        return place if row is not None and place < len(rows) and rows[place] == row else None

    def drop(self, skill_id: str) -> None:
        """Drop a skill, if it is in this block."""
        row = self._rows.pop(skill_id, None)
        if row is not None:
            self.alive[row] = False
            self.live -= 1

    def find(self, asked: Member, min_cosine: float) -> tuple[Rows, Floats, Floats, Booleans]:
        """Find other skills whose bodies have at least `min_cosine`, or that have the same name.

        Returns their rows, the cosines of bodies and of descriptions, and a mask of equal names.
        """
        cosines = self._bodies.cosines(asked.body, len(self.ids))
        is_found = cosines >= min_cosine
        is_namesake = np.zeros(len(self.ids), dtype=bool)
        is_namesake[self._named.get(asked.name, [])] = True
        is_found |= is_namesake
        is_found &= self.alive
        own = self._rows.get(asked.skill_id)
        if own is not None:
            is_found[own] = False
        rows = np.flatnonzero(is_found)
        description = self._descriptions.cosines(asked.description, rows)
        return rows, cosines[rows], description, is_namesake[rows]


class _Inverted:
    """Sparse vectors in inverted form: for each term, the vectors that contain it, with weights."""

    def __init__(self, held: _Terms) -> None:
        order = np.argsort(held.terms, kind="stable")
        self._owners = held.owners[order].astype(np.uint16)
        self._weights = held.weights[order]
        self._terms, counts = np.unique(held.terms, return_counts=True)
        self._starts = np.concatenate([[0], np.cumsum(counts)])

    def read(self) -> _Terms:
        """Return all entries, sorted by term."""
        terms = np.repeat(self._terms, np.diff(self._starts))
        return _Terms(terms, self._owners.astype(np.int64), self._weights)

    def cosines(self, vector: QuantisedVector, size: int) -> Floats:
        """Return the dot product with every vector, float64 (size,), exact."""
        places, known = _places(self._terms, vector[0])
        starts = self._starts[places]
        spans, lengths = _spans(starts, self._starts[places + 1] - starts)
        products = np.repeat(vector[1][known].astype(np.float64), lengths)
        products *= self._weights[spans]
        return np.bincount(self._owners[spans], products, size) / WEIGHT_STEPS**2


class _ByRow:
    """Sparse vectors in compressed rows."""

    def __init__(self, held: _Terms, size: int) -> None:
        order = np.argsort(held.owners, kind="stable")
        self._terms, self._weights = held.terms[order], held.weights[order]
        self._starts = np.concatenate([[0], np.cumsum(np.bincount(held.owners, minlength=size))])

    def read(self) -> _Terms:
        """Return all entries, sorted by row."""
        lengths = np.diff(self._starts)
        return _Terms(self._terms, np.repeat(np.arange(len(lengths)), lengths), self._weights)

    def cosines(self, vector: QuantisedVector, rows: Rows) -> Floats:
        """Return the dot product with the vectors of these rows, float64 (rows,), exact."""
        starts = self._starts[rows]
        spans, lengths = _spans(starts, self._starts[rows + 1] - starts)
        found = np.searchsorted(vector[0], self._terms[spans])
        # With a plain 0, numpy would convert the terms to float64, which rounds them.
        terms, weights = np.append(vector[0], np.uint64(0)), np.append(vector[1], np.uint16(0))
        is_shared = (terms[found] == self._terms[spans]) & (found < len(vector[0]))
        products = weights[found].astype(np.float64) * self._weights[spans] * is_shared
        owners = np.repeat(np.arange(len(rows)), lengths)
        return np.bincount(owners, products, len(rows)) / WEIGHT_STEPS**2


def _places(
    terms: npt.NDArray[np.uint64], asked: npt.NDArray[np.uint64]
) -> tuple[Rows, npt.NDArray[np.int64]]:
    """Return the indexes of the common terms in `terms`, and in `asked`."""
    places = np.searchsorted(terms, asked)
    known = np.flatnonzero(places < len(terms))
    known = known[terms[places[known]] == asked[known]]
    return places[known], known


def _spans(starts: Rows, lengths: Rows) -> tuple[Rows, Rows]:
    """Return the concatenated indexes of several spans, and the spans' lengths."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - ends + lengths, lengths) + np.arange(total), lengths
