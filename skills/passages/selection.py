"""Method F: selects the passages whose score is worth their tokens.

The probability that a passage is needed falls with its distance from the best one and with the
skill's length, and rises with the breadth of the query; its cost is its tokens. In logarithms this
is a sum, the margin, compared with a limit, the gap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from skills.passages.inputs import DEFAULT_WEIGHTS, Floats, PassageInput, PassageWeights
from skills.passages.line_ranges import get_line_ranges
from skills.passages.scoring import PassageScores
from skills.record import ParsedSkill
from skills.token_count import count_tokens


def required_gaps(
    scores: PassageScores, skill: PassageInput, weights: PassageWeights = DEFAULT_WEIGHTS
) -> Floats:
    """The smallest gap at which each passage is selected (P,); at most 0 for the best.

    Gaps refer to a query of breadth_terms terms; a broader query selects more at the same gap.
    """
    if not scores.passages.size:
        return np.empty(0, np.float32)
    times = scores.terms / weights.breadth_terms
    clipped = min(max(times, 1 / weights.breadth_limit), weights.breadth_limit)
    gaps = -_compute_margins(scores, skill, weights) - weights.breadth * math.log(clipped)
    gaps[scores.passages == scores.passages.max()] = min(0.0, float(gaps.min()))
    return gaps


def select_passages(
    scores: PassageScores,
    skill: PassageInput,
    gap: float,
    max_tokens: int | None = None,
    weights: PassageWeights = DEFAULT_WEIGHTS,
) -> list[int]:
    """Indexes of the passages within the gap, ascending.

    With `max_tokens`, only the best of them whose lines, as by `get_line_ranges`, fit.
    """
    gaps = required_gaps(scores, skill, weights)
    kept = np.flatnonzero(gaps <= gap)
    if max_tokens is None:
        return [int(index) for index in kept]
    worth_first = kept[np.argsort(gaps[kept], kind="stable")].tolist()
    return sorted(_select_fitting(skill.parsed, worth_first, max_tokens))


def passage_utilities(
    scores: PassageScores, skill: PassageInput, weights: PassageWeights = DEFAULT_WEIGHTS
) -> Floats:
    """The utility of each passage relative to its tokens (P,), above 0; about 1 for the best.

    It falls with the margin, so it is comparable between skills of one query, for spending a token
    budget across them.
    """
    if not scores.passages.size:
        return np.empty(0, np.float32)
    return np.asarray(np.exp(weights.odds * _compute_margins(scores, skill, weights)), np.float32)


def _compute_margins(scores: PassageScores, skill: PassageInput, weights: PassageWeights) -> Floats:
    """Score relative to the best in a skill of usual length, minus the log of the cost (P,)."""
    tokens = np.array([max(passage.tokens, 1) for passage in skill.parsed.passages], np.float32)
    stretch = (float(tokens.sum()) / weights.gap_tokens) ** weights.gap_power
    if not scores.dense:
        stretch /= weights.lexical_gap
    below = (scores.passages - scores.passages.max()) * stretch
    return np.asarray(below - weights.cost * np.log(tokens / weights.cost_tokens), np.float32)


def _select_fitting(parsed: ParsedSkill, worth_first: Sequence[int], max_tokens: int) -> list[int]:
    """The passages that fit in order, counting the tokens of their headings and lead-ins."""
    fitting: list[int] = []
    paid: set[int] = set()
    left = max_tokens
    for index in worth_first:
        lines = {
            number
            for first, last in get_line_ranges(parsed, [index])
            for number in range(first, last + 1)
        }
        cost = sum(count_tokens(parsed.lines[number - 1]) for number in lines - paid)
        if cost <= left:
            fitting.append(index)
            paid |= lines
            left -= cost
    return fitting
