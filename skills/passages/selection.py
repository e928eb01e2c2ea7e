"""Where method F stops: a passage is kept while what it is worth covers what it costs.

The chance that a passage is needed falls with its distance from the best one and with the skill's
length, and rises with the breadth of the query; what it costs is its tokens. In logarithms that
is one sum, the margin, and one limit, the gap.
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
    """The gap from which on each passage is kept (P,); never above 0 for the best.

    Gaps are meant for a query of breadth_terms terms: a broader one reaches further down.
    """
    if not scores.passages.size:
        return np.empty(0, np.float32)
    times = scores.terms / weights.breadth_terms
    clipped = min(max(times, 1 / weights.breadth_limit), weights.breadth_limit)
    gaps = -_margins(scores, skill, weights) - weights.breadth * math.log(clipped)
    gaps[scores.passages == scores.passages.max()] = min(0.0, float(gaps.min()))
    return gaps


def select_passages(
    scores: PassageScores,
    skill: PassageInput,
    gap: float,
    max_tokens: int | None = None,
    weights: PassageWeights = DEFAULT_WEIGHTS,
) -> list[int]:
    """The passages that the gap reaches, ascending.

    With `max_tokens`, the passages worth most are kept whose lines, as `lines_of` gives them, cost
    no more than that.
    """
    gaps = required_gaps(scores, skill, weights)
    kept = np.flatnonzero(gaps <= gap)
    if max_tokens is None:
        return [int(index) for index in kept]
    worth_first = kept[np.argsort(gaps[kept], kind="stable")].tolist()
    return sorted(_within(skill.parsed, worth_first, max_tokens))


def passage_utilities(
    scores: PassageScores, skill: PassageInput, weights: PassageWeights = DEFAULT_WEIGHTS
) -> Floats:
    """What sending each passage is worth for its tokens (P,), above 0; about 1 for the best.

    It falls with the margin, so it is comparable between skills that one query is asked of, and a
    budget can be spent across them.
    """
    if not scores.passages.size:
        return np.empty(0, np.float32)
    return np.asarray(np.exp(weights.odds * _margins(scores, skill, weights)), np.float32)


def _margins(scores: PassageScores, skill: PassageInput, weights: PassageWeights) -> Floats:
    """Distance below the best in a skill of usual length, less the logarithm of the cost (P,)."""
    tokens = np.array([max(passage.tokens, 1) for passage in skill.parsed.passages], np.float32)
    stretch = (float(tokens.sum()) / weights.gap_tokens) ** weights.gap_power
    if not scores.dense:
        stretch /= weights.lexical_gap
    below = (scores.passages - scores.passages.max()) * stretch
    return np.asarray(below - weights.cost * np.log(tokens / weights.cost_tokens), np.float32)


def _within(parsed: ParsedSkill, worth_first: Sequence[int], max_tokens: int) -> list[int]:
    """As many of the passages as fit together, headings and lead-ins paid for."""
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
