"""Scores of what skills state about their use: prompts given as examples, and excluded uses."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from search.protocol import ForwardRecord
from search.scoring.field_matches import find_matches
from search.scoring.weights import ScoringWeights
from search.text.query_understanding import Understanding

_Floats = npt.NDArray[np.float64]


def score_examples(
    understanding: Understanding,
    records: Sequence[ForwardRecord],
    mass: _Floats,
    weights: ScoringWeights,
) -> _Floats:
    """Return BM25 of the task over the terms of each record's examples, (records,).

    mass: query weight x idf of each term of the task; the score is divided by the root of its
    sum. A term counts once, and examples of many words count less.
    """
    lists = [record.examples for record in records]
    owners, places, _ = find_matches(understanding.ids, lists)
    lengths = np.array([len(terms) for terms in lists], dtype=np.float64)
    norm = weights.examples_norm
    damped = 1.0 - norm + norm * lengths / weights.examples_length
    gains = mass[places] * 2.0 / (1.0 + damped[owners])
    root = float(np.sqrt(mass.sum())) or 1.0
    return np.bincount(owners, weights=gains, minlength=len(records)) / root


def measure_exclusion(
    understanding: Understanding,
    records: Sequence[ForwardRecord],
    mass: _Floats,
    offered: _Floats,
) -> _Floats:
    """Return by how much the task is rather what a skill excludes than what it offers, (records,).

    The share of the task's mass in the best matching of the excluded uses, less the share
    `offered`, which name and description have; at least 0.
    """
    excluded = np.zeros(len(records))
    excluding = [place for place, record in enumerate(records) if record.excluded]
    if not excluding:
        return excluded
    uses = list(chain.from_iterable(records[place].excluded for place in excluding))
    owners = np.repeat(excluding, [len(records[place].excluded) for place in excluding])
    clauses, places, _ = find_matches(understanding.ids, uses)
    shares = np.bincount(clauses, weights=mass[places], minlength=len(uses))
    np.maximum.at(excluded, owners, shares / max(float(mass.sum()), 1e-9))
    return np.maximum(excluded - offered, 0.0)
