"""Scores of what skills state about their use: prompts given as examples, and excluded uses."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from search.packed_records import PackedRecords
from search.scoring.field_matches import find_matches
from search.scoring.weights import ScoringWeights
from search.text.query_understanding import Understanding

_Floats = npt.NDArray[np.float64]


def score_examples(
    understanding: Understanding,
    records: PackedRecords,
    mass: _Floats,
    weights: ScoringWeights,
) -> _Floats:
    """Return BM25 of the task over the terms of each record's examples, (records,).

    mass: query weight x idf of each term of the task; the score is divided by the root of its
    sum. A term counts once, and examples of many words count less.
    """
    owners, places, _ = find_matches(understanding.ids, records.examples)
    lengths = records.examples.sizes.astype(np.float64)
    norm = weights.examples_norm
    damped = 1.0 - norm + norm * lengths / weights.examples_length
    gains = mass[places] * 2.0 / (1.0 + damped[owners])
    root = float(np.sqrt(mass.sum())) or 1.0
    return np.bincount(owners, weights=gains, minlength=len(records)) / root


def measure_exclusion(
    understanding: Understanding,
    records: PackedRecords,
    mass: _Floats,
    offered: _Floats,
) -> _Floats:
    """Return by how much the task matches what a skill excludes more than what it offers,
    (records,).

    The share of the task's mass in the best matching of the excluded uses, less the share
    `offered`, which name and description have; at least 0.
    """
    excluded = np.zeros(len(records))
    if not len(records.excluded):
        return excluded
    clauses, places, _ = find_matches(understanding.ids, records.excluded)
    shares = np.bincount(clauses, weights=mass[places], minlength=len(records.excluded))
    np.maximum.at(excluded, records.excluding, shares / max(float(mass.sum()), 1e-9))
    return np.maximum(excluded - offered, 0.0)
