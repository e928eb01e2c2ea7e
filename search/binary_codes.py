"""Binary codes of vectors: one bit a dimension, to find the likely nearest of many quickly.

A code is the signs of a vector's difference from the mean of all. The share of bits in which two
codes differ estimates the angle between the differences (Charikar, *Similarity estimation
techniques from rounding algorithms*, STOC 2002, section 3), and from it follows the cosine of the
vectors themselves. Without the mean the codes of models whose vectors all point one way (E5) would
be nearly equal. Estimates only choose the vectors that are compared exactly; they are no part of a
score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from search.protocol import Vector

_WORD = 64
"""Bits of a word."""

_ENCODE_ROWS = 4096
_ESTIMATE_ROWS = 1 << 16
"""Rows encoded and estimated in one pass, which bounds the size of temporary arrays."""

_WORDS_PER_BYTE = 3
"""Words whose differing bits fit into a byte together: 192 of 255."""
_SAMPLE_STEP = 32
"""One of this many values is sampled to estimate the bound of the largest ones."""


class _Buffers(NamedTuple):
    """Arrays reused for each part of the rows, since allocating them takes as long as filling
    them."""

    words: npt.NDArray[np.uint64]
    counts: npt.NDArray[np.uint8]
    sums: npt.NDArray[np.uint8]
    totals: npt.NDArray[np.uint16]

    @classmethod
    def create(cls, rows: int) -> _Buffers:
        """Return buffers for `rows` rows."""
        return cls(
            np.empty(rows, np.uint64),
            np.empty(rows, np.uint8),
            np.empty(rows, np.uint8),
            np.empty(rows, np.uint16),
        )

    def count_differing(
        self, bits: Sequence[npt.NDArray[np.uint64]], code: npt.NDArray[np.uint64]
    ) -> npt.NDArray[np.uint16]:
        """Return the number of bits in which each row differs from the code.

        The next call overwrites the result.
        """
        rows = len(bits[0])
        words, counts = self.words[:rows], self.counts[:rows]
        sums, totals = self.sums[:rows], self.totals[:rows]
        totals.fill(0)
        for first in range(0, len(bits), _WORDS_PER_BYTE):
            sums.fill(0)
            for word, own in zip(
                bits[first : first + _WORDS_PER_BYTE],
                code[first : first + _WORDS_PER_BYTE],
                strict=True,
            ):
                np.bitwise_xor(word, own, out=words)
                np.bitwise_count(words, out=counts)
                np.add(sums, counts, out=sums)
            np.add(totals, sums, out=totals)
        return totals


@dataclass(frozen=True, slots=True)
class BinaryCodes:
    """The codes of the rows of a matrix, with room for more.

    mean: float32 (dimension,). bits: for each word of a code, that word of all rows, uint64
    (room,), so that numpy compares all rows in one pass. offsets, lengths: float32 (room,), the
    product of mean and difference and the length of the difference; an offset of -inf leaves a row
    out.
    """

    mean: Vector
    bits: Sequence[npt.NDArray[np.uint64]]
    offsets: Vector
    lengths: Vector

    @classmethod
    def create(cls, mean: Vector, room: int) -> BinaryCodes:
        """Return codes without rows."""
        return cls(
            mean,
            [np.zeros(room, dtype=np.uint64) for _ in range(count_words(len(mean)))],
            np.zeros(room, dtype=np.float32),
            np.zeros(room, dtype=np.float32),
        )

    def encode(
        self, first: int, vectors: npt.NDArray[np.int8] | Vector, inverse_norms: Vector
    ) -> None:
        """Encode rows from `first` on: vectors (n, dimension) and 1 / their norms, (n,); 0 leaves a
        row out."""
        for start in range(0, len(vectors), _ENCODE_ROWS):
            part = vectors[start : start + _ENCODE_ROWS].astype(np.float32)
            norms = inverse_norms[start : start + _ENCODE_ROWS]
            difference = part * norms[:, None] - self.mean
            rows = slice(first + start, first + start + len(part))
            for word, packed in zip(self.bits, _pack(difference).T, strict=True):
                word[rows] = packed
            self.offsets[rows] = np.where(norms > 0, np.vecdot(difference, self.mean), -np.inf)
            self.lengths[rows] = np.linalg.norm(difference, axis=1)

    def estimate(self, vector: Vector, rows: int) -> Vector:
        """Return estimated cosines of a unit vector with the first `rows`, float32 (rows,), up to a
        constant."""
        difference = np.asarray(vector, dtype=np.float32) - self.mean
        code = _pack(difference[None, :])[0]
        angles = np.arange(len(self.mean) + 1) * (np.pi / len(self.mean))
        cosines = (np.cos(angles) * np.linalg.norm(difference)).astype(np.float32)
        estimates = np.empty(rows, dtype=np.float32)
        # Few rows at a time, which stay in the processor's cache.
        buffers = _Buffers.create(min(rows, _ESTIMATE_ROWS))
        for start in range(0, rows, _ESTIMATE_ROWS):
            part = slice(start, min(start + _ESTIMATE_ROWS, rows))
            differing = buffers.count_differing([word[part] for word in self.bits], code)
            some = estimates[part]
            np.take(cosines, differing, out=some, mode="clip")
            np.multiply(some, self.lengths[part], out=some)
            np.add(some, self.offsets[part], out=some)
        return estimates


def likely_nearest(
    codes: BinaryCodes | None,
    vector: Vector,
    size: int,
    count: int,
    passing: npt.NDArray[np.bool_] | None,
) -> npt.NDArray[np.intp]:
    """Return the `count` rows with the best estimates, in any order; all if there are fewer.

    size: number of rows to search. passing: mask of the rows that may be returned, (size,); None
    for all. Without codes all passing rows are returned.
    """
    total = size if passing is None else int(np.count_nonzero(passing))
    if total < count or codes is None:
        return np.arange(size) if passing is None else np.flatnonzero(passing)
    estimates = codes.estimate(vector, size)
    if passing is not None:
        estimates[~passing] = -np.inf
    return _largest(estimates, count)


def _largest(values: Vector, count: int) -> npt.NDArray[np.intp]:
    """Return the places of the `count` largest values, in any order."""
    sample = values[::_SAMPLE_STEP]
    # Partitioning all values takes longer than partitioning the few above a bound, which a sample
    # gives.
    likely = 2 * count // _SAMPLE_STEP + 1
    if likely < len(sample):
        bound = np.partition(sample, len(sample) - likely)[len(sample) - likely]
        places = np.flatnonzero(values >= bound)
        if len(places) >= count:
            return places[np.argpartition(-values[places], count - 1)[:count]]
    return np.argpartition(-values, count - 1)[:count]


def count_words(dimension: int) -> int:
    """Return the number of words in the code of a vector."""
    return -(-dimension // _WORD)


def _pack(difference: Vector) -> npt.NDArray[np.uint64]:
    """Return the signs of each row as words, uint64 (n, words); bits beyond the dimension are 0."""
    signs = difference > 0
    missing = -difference.shape[1] % _WORD
    if missing:
        signs = np.pad(signs, ((0, 0), (0, missing)))
    return np.packbits(signs, axis=1).view(np.uint64)
