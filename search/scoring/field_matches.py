"""Terms of a task found in the fields of candidates, and their BM25F."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from search.packed_records import HashLists, PackedRecords
from search.protocol import FIELDS, TermIds
from search.scoring.library_statistics import LibraryStatistics
from search.scoring.weights import ScoringWeights
from search.text.query_understanding import Understanding

_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.intp]
_BUCKETS = np.uint64(1 << 16)
_NAME = FIELDS.index("name")
_DESCRIPTION = FIELDS.index("description")


class FieldMatches:
    """The matches of a task's terms in records, scored by BM25F (Robertson and Zaragoza, 2009).

    idf: of each term of the task. Every score is divided by the root of the task's idf mass, so
    that scores of tasks of any length are comparable.
    """

    def __init__(
        self,
        understanding: Understanding,
        records: PackedRecords,
        idf: _Floats,
        statistics: LibraryStatistics,
        weights: ScoringWeights,
    ) -> None:
        self._weights = weights
        self._mass = understanding.weights.astype(np.float64) * idf
        self._root = float(np.sqrt(self._mass.sum())) or 1.0
        self._owners, self._places, rows = find_matches(understanding.ids, records.terms)
        self._size, self._width = records.lengths.shape
        norms = np.array(weights.length_norms[: self._width])
        means = statistics.mean_lengths[: self._width].astype(np.float64)
        damped = 1.0 - norms + norms * records.lengths / means
        # An empty field has no terms, so the floor of its length has no effect.
        self._tf = records.counts[rows] / np.maximum(damped, 1e-6)[self._owners]

    def score_text(self, t: float) -> _Floats:
        """Return BM25F over all fields, interpolated between short and long, (records,)."""
        weights = self._weights
        blended = np.zeros(self._size)
        if t > 0.0:
            blended += t * self._saturate(weights.field_weights, weights.k_long)
        if t < 1.0:
            body = (weights.body_short, weights.body_short)
            fields = (*weights.field_weights[:3], *body, *weights.field_weights[5:])
            blended += (1.0 - t) * self._saturate(fields, weights.k_short)
        return blended

    def score_description(self) -> _Floats:
        """Return BM25 over the description alone, (records,)."""
        alone = [float(place == _DESCRIPTION) for place in range(len(FIELDS))]
        return self._saturate(alone, self._weights.k_description)

    def measure_offered(self) -> _Floats:
        """Return the share of the task's mass that name and description have, (records,)."""
        found = self._tf[:, [_NAME, _DESCRIPTION]].any(axis=1)
        mass = self._mass[self._places] * found
        total = max(float(self._mass.sum()), 1e-9)
        return np.bincount(self._owners, weights=mass, minlength=self._size) / total

    def _saturate(self, field_weights: Sequence[float], k: float) -> _Floats:
        tf = self._tf @ np.array(field_weights[: self._width])
        gains = self._mass[self._places] * (k + 1.0) * tf / (tf + k)
        return np.bincount(self._owners, weights=gains, minlength=self._size) / self._root


def find_matches(wanted: TermIds, lists: HashLists) -> tuple[_Ints, _Ints, _Ints]:
    """Find wanted hashes in lists of hashes.

    Returns three arrays with, for every match, the index of the list, the index in `wanted`, and
    the place in `lists.values`.
    """
    together = lists.values
    # Of a hundred thousand terms a few hundred match: a table of the low bits excludes most.
    likely = np.zeros(_BUCKETS, dtype=np.bool_)
    likely[wanted & (_BUCKETS - 1)] = True
    rows = np.flatnonzero(likely[together & (_BUCKETS - 1)])
    order = np.argsort(wanted)
    ranked = wanted[order]
    near = ranked.searchsorted(together[rows])
    near[near == len(ranked)] = 0
    found = ranked[near] == together[rows] if len(ranked) else np.zeros(0, dtype=np.bool_)
    rows = rows[found]
    return lists.ends.searchsorted(rows, side="right"), order[near[found]], rows
