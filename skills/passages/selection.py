"""Estimates which passages of a skill a query needs, and selects enough of them.

Method F's margin is the distance of a passage's score from the best score, adjusted for the length
of the skill and the tokens of the passage. `model` corrects it with features learned from labelled
lines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from skills.passages.features import compute_features
from skills.passages.inputs import (
    DEFAULT_WEIGHTS,
    Floats,
    PassageInput,
    PassageQuery,
    PassageWeights,
)
from skills.passages.model import NeedModel, load_need_models
from skills.passages.scoring import PassageScores, score_passages
from skills.record import Passage, PassageKind


@dataclass(frozen=True, slots=True)
class PassageNeeds:
    """Estimated needs of the passages of a skill for a query.

    needs: (P,), higher for passages that are needed more; comparable between skills. model: model
    of the estimate. dense: whether vectors were used.
    """

    needs: Floats
    model: NeedModel
    dense: bool

    def order(self) -> list[int]:
        """Return the indexes of the passages, most needed first."""
        return [int(index) for index in np.argsort(-self.needs, kind="stable")]

    def select_enough(self, miss: float) -> list[int]:
        """Return the indexes of the passages that suffice, ascending; at least one.

        miss: share of the required passages that may be missing, on average over queries.
        """
        if not self.needs.size:
            return []
        limit = min(self.model.threshold(miss), float(self.needs.max()))
        return [int(index) for index in np.flatnonzero(self.needs >= limit)]

    def sufficiency(self, miss: float) -> float:
        """Return the share of queries for which the passages of `select_enough` are sufficient."""
        return 1.0 - self.model.shortfall(self.model.threshold(miss)) if miss > 0 else 1.0


def estimate_needs(
    query: PassageQuery, skill: PassageInput, weights: PassageWeights = DEFAULT_WEIGHTS
) -> PassageNeeds:
    """Estimate how much the query needs each passage; without vectors, by words only."""
    scores = score_passages(query, skill, weights)
    model = load_need_models()["vectors" if scores.dense else "words"]
    if not skill.parsed.passages:
        return PassageNeeds(np.empty(0, np.float32), model, scores.dense)
    margins = compute_margins(scores, skill, weights)
    features = compute_features(scores, margins, skill)
    return PassageNeeds(model.needs(features), model, scores.dense)


def find_short_lists(passages: Sequence[Passage], max_tokens: int) -> dict[int, int]:
    """Return the index of each item of a list of at most `max_tokens`, with that of the list's
    first item."""
    runs = groupby(passages, key=lambda one: (one.section, one.kind))
    lists = (list(run) for (_, kind), run in runs if kind is PassageKind.LIST_ITEM)
    return {
        item.index: items[0].index
        for items in lists
        if sum(one.tokens for one in items) <= max_tokens
        for item in items
    }


def compute_margins(scores: PassageScores, skill: PassageInput, weights: PassageWeights) -> Floats:
    """Return method F's margin of each passage (P,).

    It is the difference from the best score, scaled to a skill of usual length, minus the weighted
    log of the passage's tokens, plus the weighted log of the query's number of terms.
    """
    tokens = np.array([max(passage.tokens, 1) for passage in skill.parsed.passages], np.float32)
    stretch = (float(tokens.sum()) / weights.gap_tokens) ** weights.gap_power
    if not scores.dense:
        stretch /= weights.lexical_gap
    below = (scores.passages - scores.passages.max()) * stretch
    times = scores.terms / weights.breadth_terms
    clipped = min(max(times, 1 / weights.breadth_limit), weights.breadth_limit)
    broad = weights.breadth * math.log(clipped)
    cost = weights.cost * np.log(tokens / weights.cost_tokens)
    return np.asarray(below - cost + broad, np.float32)
