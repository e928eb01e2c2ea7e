"""Past tasks in memory as rows: an int8 vector with its binary code, or words with their weights.

A task with a vector is found by its vector alone: in experiments, words in addition found nothing
more. Rows are found by their exact cosine with a task. Binary codes choose which of many are
compared; all that tie with the last one chosen are compared too, so that the result depends only on
which rows there are, and not on their order.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from search.binary_codes import BinaryCodes
from search.blob_codec import quantise
from search.protocol import TermIds, Vector
from search.text.background_frequencies import load_background
from search.text.query_understanding import Understanding

COMPARED_ROWS = 1024
"""Minimum number of rows whose cosines are computed for a task."""

_MAX_POSTINGS = 50_000
"""Words of a task are looked up, the heaviest first, up to this number of occurrences in past
tasks."""

_GROWTH = 1.25
"""Room of new arrays, as a multiple of the rows in use."""

_MAX_DEAD_SHARE = 0.25
"""Share of removed rows from which the rows should be rebuilt."""

_FIRST_ROOM = 256

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]


class TaskWords(NamedTuple):
    """The distinct words of a task.

    ids: hashes, sorted, uint64 (n,). shares: share of each word in the task's mass, float32 (n,);
    their squares sum to 1. Mass is weight times idf in public skills, which does not depend on the
    library.
    """

    ids: TermIds
    shares: Vector


class Int8Vector(NamedTuple):
    """A unit vector as int8: `values` (dimension,) times `scale`."""

    values: npt.NDArray[np.int8]
    scale: float


def weigh_words(understanding: Understanding) -> TaskWords:
    """Return the words of a task with the share of its mass that each has."""
    order = np.argsort(understanding.ids)
    ids = understanding.ids[order]
    mass = understanding.weights[order].astype(np.float64) * load_background().idf(ids)
    shares = mass / max(float(np.sqrt(np.sum(mass * mass))), 1e-9)
    return TaskWords(ids, shares.astype(np.float32))


def _inverse_norm(values: npt.NDArray[np.int8]) -> float:
    """Return the factor that makes int8 values a unit vector; with the stored scale, rounding would
    change the length."""
    whole = values.astype(np.int64)
    return 1.0 / max(float(np.sqrt(whole @ whole)), 1e-9)


def to_int8(vector: Vector) -> Int8Vector:
    """Return a vector as int8, its largest element as 127."""
    scale, data = quantise(vector)
    return Int8Vector(np.frombuffer(data, dtype=np.int8), scale)


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Rows with their similarity to a task, both (n,), in no order."""

    rows: Rows
    similarities: Floats


class PastTaskRows:
    """Words and vectors of past tasks by row. Not thread-safe.

    dimension: of vectors. centre: the vector about which binary codes are computed, (dimension,); a
    property of the encoder, since codes about the mean of the rows would depend on their order of
    arrival.
    """

    def __init__(self, dimension: int, centre: Vector | None = None) -> None:
        self._dimension = dimension
        self._centre = np.zeros(dimension, dtype=np.float32) if centre is None else centre
        self._words: list[TaskWords | None] = []
        self._postings: dict[int, tuple[array[int], array[float]]] = {}
        self._dead = 0
        self._coded = 0
        self._allocate(_FIRST_ROOM)

    def _allocate(self, room: int) -> None:
        self._vectors = np.zeros((room, self._dimension), dtype=np.int8)
        self._scales = np.zeros(room, dtype=np.float64)
        self._with_vector = np.zeros(room, dtype=np.bool_)
        self._codes = BinaryCodes.create(self._centre, room)

    @property
    def size(self) -> int:
        """Number of rows, removed ones included."""
        return len(self._words)

    @property
    def vectors(self) -> int:
        """Number of rows with a vector."""
        return int(np.count_nonzero(self._with_vector[: self.size]))

    @property
    def is_sparse(self) -> bool:
        """Whether so many rows were removed that `rebuild` is worthwhile."""
        return self._dead > _FIRST_ROOM and self._dead > _MAX_DEAD_SHARE * self.size

    def add(self, task: Int8Vector | TaskWords) -> int:
        """Add a task by its vector, or by its words if it has no vector; return its row."""
        row = self.size
        if row == len(self._scales):
            self._grow()
        if isinstance(task, Int8Vector):
            self._words.append(None)
            self._vectors[row] = task.values
            self._scales[row] = _inverse_norm(task.values)
            self._with_vector[row] = True
            return row
        self._words.append(task)
        for term, share in zip(task.ids.tolist(), task.shares.tolist(), strict=True):
            rows, shares = self._postings.setdefault(term, (array("i"), array("f")))
            rows.append(row)
            shares.append(share)
        return row

    def remove(self, row: int) -> None:
        """Remove a task by its row."""
        words = self._words[row]
        for term in words.ids.tolist() if words is not None else ():
            rows, shares = self._postings[term]
            place = rows.index(row)
            rows.pop(place)
            shares.pop(place)
            if not rows:
                del self._postings[term]
        self._with_vector[row] = False
        self._scales[row] = 0.0
        self._codes.offsets[row] = -np.inf
        self._words[row] = None
        self._dead += 1

    def _encode(self) -> None:
        """Compute the missing codes of rows. Most libraries never have enough tasks to need
        codes."""
        rows = slice(self._coded, self.size)
        scales = self._scales[rows].astype(np.float32)
        self._codes.encode(self._coded, self._vectors[rows], scales)
        self._coded = self.size

    def _grow(self) -> None:
        vectors, scales, with_vector = self._vectors, self._scales, self._with_vector
        codes, size = self._codes, len(scales)
        self._allocate(int(size * _GROWTH) + _FIRST_ROOM)
        self._vectors[:size], self._scales[:size] = vectors, scales
        self._with_vector[:size] = with_vector
        if self._coded:
            for word, known in zip(self._codes.bits, codes.bits, strict=True):
                word[:size] = known
            self._codes.offsets[:size], self._codes.lengths[:size] = codes.offsets, codes.lengths

    def find_near_vector(self, vector: Int8Vector, count: int = COMPARED_ROWS) -> FoundRows:
        """Return the cosines of at least the `count` likely nearest rows with a vector, or of all
        if there are fewer.

        Sums of products of int8 are exact in float32 up to a dimension of 1040, and in float64
        beyond, so that cosines do not depend on how the processor adds them up.
        """
        if self.size > count:
            self._encode()
            unit = vector.values.astype(np.float32) * np.float32(_inverse_norm(vector.values))
            estimates = self._codes.estimate(unit, self.size)
            least = np.partition(estimates, self.size - count)[self.size - count]
            rows = np.flatnonzero((estimates >= least) & self._with_vector[: self.size])
        else:
            rows = np.flatnonzero(self._with_vector[: self.size])
        exact = np.float32 if self._dimension <= 1040 else np.float64
        products = self._vectors[rows].astype(exact) @ vector.values.astype(exact)
        scale = _inverse_norm(vector.values)
        return FoundRows(rows, products.astype(np.float64) * (self._scales[rows] * scale))

    def find_sharing_words(self, words: TaskWords) -> FoundRows:
        """Return the cosines of the words of the rows without a vector that share some of the
        heaviest."""
        sums = np.zeros(self.size if self._postings else 0, dtype=np.float64)
        looked_up = 0
        for place in np.lexsort((words.ids, -words.shares)).tolist():
            found = self._postings.get(int(words.ids[place]))
            if found is None:
                continue
            looked_up += len(found[0])
            if looked_up > max(_MAX_POSTINGS, len(found[0])):
                break
            shares = np.frombuffer(found[1], dtype=np.float32)
            # A task has each word once, so no row occurs twice.
            sums[np.frombuffer(found[0], dtype=np.intc)] += np.float64(words.shares[place]) * shares
        rows = np.flatnonzero(sums)
        return FoundRows(rows, sums[rows])

    def rebuild(self, rows: Sequence[int]) -> tuple[PastTaskRows, list[int]]:
        """Return these rows alone, in a new object, with their new places."""
        fresh = PastTaskRows(self._dimension, self._centre)
        places = []
        for row in rows:
            words = self._words[row]
            vector = Int8Vector(self._vectors[row].copy(), float(self._scales[row]))
            places.append(fresh.add(vector if words is None else words))
        return fresh, places
