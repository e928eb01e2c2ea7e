"""Probabilities that ranked skills are right for a task, by logistic models of few features.

Three models read the first candidates of a ranking: `first` is about the candidate in the first
place, `further` about each one behind it, and `library` says whether any of the first ten is right,
which is what NO_SKILL_HIT follows from. Their weights are in `probability_weights.json`, fitted by
`tests/bench/fit_probability.py`.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from search.packed_records import PackedRecords
from search.protocol import FIELDS
from search.scoring.field_matches import find_matches
from search.scoring.library_statistics import LibraryStatistics
from search.text.background_frequencies import load_background
from search.text.query_understanding import Understanding

Floats = npt.NDArray[np.float64]

_DESCRIPTION = FIELDS.index("description")

RIVALS = 20
"""Number of candidates that the features read; only these get a probability."""

WITHIN = 10
"""Number of first candidates that the model `library` is about."""

HEADS = ("first", "further", "library")
FEATURES = ("gap", "lead", "evidence", "coverage", "nearness", "description", "matched")
"""Features that speak for a candidate: none of their weights may be negative.

gap: score less that of the best rival, as a share of the best score, or of _MIN_SCORE if that is
more. lead: score above that of the last rival. evidence: logarithm of BM25F over the root of the
task's idf mass, and over sqrt(ln(1 + library size)), with which it grows as idf does. coverage:
BM25F over that mass. nearness: the better cosine with the task in standard deviations above the
mean of unrelated texts, less _TYPICAL_NEARNESS; 0 where the encoder does not know the language.
description: share of the idf mass of the skill's description that the task has. matched: logarithm
of the background idf mass of the task's terms that the skill has. In a small library nearly every
term is rare; the background knows that "again" is not.
"""

_TYPICAL_NEARNESS = 4.0
"""Subtracted from `nearness`, so that an unknown nearness, 0, counts as a typical one."""

_MIN_EVIDENCE = 0.05
"""Minimum of `evidence` before its logarithm is taken, which is not defined for 0."""

_MIN_SCORE = 2.0
"""Minimum score that gaps are a share of, over sqrt(ln(1 + library size)). Where a task has no word
in common with any skill, scores are small, and one may be several times another by chance. No
right first skill of 1,840 tasks had a score below 2.1 times that root."""


@dataclass(frozen=True, slots=True)
class RankedEvidence:
    """Inputs of the features of the first n candidates of a task, in the order of rank.

    scores, evidence, descriptions, matched: float64, (n,), as in FEATURES. nearness: the same, NaN
    where unknown. mass: idf mass of the task. skills: number in the library. long_task_weight: 0
    for a short query, 1 for a long task.
    """

    scores: Floats
    evidence: Floats
    nearness: Floats
    descriptions: Floats
    matched: Floats
    mass: float
    skills: int
    long_task_weight: float


@dataclass(frozen=True, slots=True)
class Probabilities:
    """Estimated probabilities. skills: of each candidate, float64 (n,). library: that one of the
    first ten is right."""

    skills: Floats
    library: float


def feature_names() -> tuple[str, ...]:
    """Return the names of the columns of `compute_features`: each feature for short and for long
    tasks."""
    pairs = [f"{name}_{kind}" for name in (*FEATURES, "unknown", "bias") for kind in _KINDS]
    return (*pairs, "place")


_KINDS = ("short", "long")


def compute_features(seen: RankedEvidence) -> Floats:
    """Return the features of the candidates, float64 (n, len(feature_names())).

    Every feature has a column for short queries and one for long tasks, between which the task's
    weight is divided. `unknown` is 1 without vectors, `place` the logarithm of the place.
    """
    count = len(seen.scores)
    if not count:
        return np.empty((0, len(feature_names())))
    growth = math.sqrt(math.log1p(max(seen.skills, 2)))
    best = max(float(seen.scores.max()), _MIN_SCORE * growth)
    order = np.argsort(-seen.scores, kind="stable")
    rival = np.full(count, seen.scores[order[0]])
    rival[order[0]] = seen.scores[order[1]] if count > 1 else 0.0
    known = ~np.isnan(seen.nearness)
    columns = (
        (seen.scores - rival) / best,
        seen.scores - seen.scores[order[-1]] if count > 1 else seen.scores,
        np.log(np.maximum(seen.evidence, _MIN_EVIDENCE) / growth),
        seen.evidence / math.sqrt(max(seen.mass, 1e-6)),
        np.where(known, seen.nearness - _TYPICAL_NEARNESS, 0.0),
        seen.descriptions,
        seen.matched,
        1.0 - known,
        np.ones(count),
    )
    t = seen.long_task_weight
    split = [column * share for column in columns for share in (1.0 - t, t)]
    return np.column_stack([*split, np.log1p(np.arange(count))])


def match_descriptions(
    understanding: Understanding, records: PackedRecords, statistics: LibraryStatistics
) -> Floats:
    """Return the share of the idf mass of each skill's description that the task has, float64
    (n,)."""
    described = records.counts[:, _DESCRIPTION] > 0
    terms, owners = records.terms.values[described], records.terms.owners[described]
    mass = statistics.idf(terms).astype(np.float64)
    total = np.bincount(owners, weights=mass, minlength=len(records))
    mass *= np.isin(terms, understanding.ids)
    shared = np.bincount(owners, weights=mass, minlength=len(records))
    return np.asarray(shared / np.maximum(total, 1e-9), dtype=np.float64)


def match_terms(understanding: Understanding, records: PackedRecords) -> Floats:
    """Return ln(1 + background idf mass of the task's terms that each skill has), float64 (n,)."""
    owners, places, _ = find_matches(understanding.ids, records.terms)
    mass = understanding.weights * load_background().idf(understanding.ids)
    return np.log1p(np.bincount(owners, weights=mass[places], minlength=len(records)))


class ProbabilityModel:
    """The three logistic models; raises ValueError for weights of another format.

    card: as in the JSON file: by head the weight of each feature, and where they come from.
    """

    def __init__(self, card: Mapping[str, Any]) -> None:
        if card.get("format") != 1 or set(card.get("weights", {})) != set(HEADS):
            raise ValueError("no weights of probabilities, or of another format")
        names = feature_names()
        self._weights = {
            head: np.array([float(card["weights"][head].get(name, 0.0)) for name in names])
            for head in HEADS
        }

    def estimate(self, seen: RankedEvidence) -> Probabilities:
        """Return the probabilities of the candidates of a task; 0 for the library without any."""
        features = compute_features(seen)
        if not len(features):
            return Probabilities(np.empty(0), 0.0)
        skills = _logistic(features @ self._weights["further"])
        skills[0] = _logistic(features[:1] @ self._weights["first"])[0]
        library = float(_logistic(features[:1] @ self._weights["library"])[0])
        return Probabilities(skills, max(library, float(skills[0])))


def _logistic(values: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(values, -30.0, 30.0))), dtype=np.float64)


@functools.cache
def load_probability_model() -> ProbabilityModel:
    """Return the model that ships with skillbus; read once."""
    text = files("search.scoring").joinpath("probability_weights.json").read_text("utf-8")
    return ProbabilityModel(json.loads(text))
