"""Candidates for the exact score, one at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from search.packed_records import pack_records
from search.protocol import ForwardRecord
from search.scoring.library_statistics import LibraryStatistics
from search.scoring.record_source import pack_completed
from search.scoring.score_candidates import ScoredCandidates, score_candidates
from search.scoring.weights import ScoringWeights
from search.text.query_understanding import Understanding
from skills.record import RevisionKey


class Candidate(NamedTuple):
    """A revision to score. cosines: with its two skill vectors, None without."""

    key: RevisionKey
    forward: ForwardRecord
    cosines: tuple[float, float] | None = None


def count_library(records: Mapping[RevisionKey, ForwardRecord]) -> LibraryStatistics:
    """The statistics of a library of these records."""
    return LibraryStatistics([pack_records(records)])


def statistics_of(candidates: Iterable[Candidate]) -> LibraryStatistics:
    """The statistics of a library of these candidates."""
    return count_library({one.key: one.forward for one in candidates})


def score(
    understanding: Understanding,
    candidates: Sequence[Candidate],
    statistics: LibraryStatistics,
    weights: ScoringWeights | None = None,
    without: frozenset[str] = frozenset(),
    **options: Any,
) -> ScoredCandidates:
    """Score candidates; further arguments as of `score_candidates`."""
    records = pack_completed({one.key: one.forward for one in candidates}, ())
    pairs = [one.cosines or (np.nan, np.nan) for one in candidates]
    cosines = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    return score_candidates(
        understanding, records, statistics, weights, without, cosines=cosines, **options
    )
