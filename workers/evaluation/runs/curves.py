"""Curves of a kept run: reliability of its probabilities, and recall of needed skills by rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from tasks.evaluations.model import EvaluatedPrompt
from workers.evaluation.metrics import calibration_error, reliability_bins

RECALL_RANKS = (1, 2, 3, 5, 10, 20, 30, 50, 100)

_Z = 1.959963984540054
"""Quantile of the normal distribution for a 95% interval."""


@dataclass(frozen=True, slots=True)
class ReliabilityPoint:
    """Prompts of similar probability. predicted: their mean probability. observed: the share whose
    first skill is right, with its 95% interval (Wilson, JASA 22, 1927)."""

    predicted: float
    observed: float
    low: float
    high: float
    prompts: int


@dataclass(frozen=True, slots=True)
class Reliability:
    """Share of right first skills by their probability. error: expected calibration error."""

    error: float
    prompts: int
    points: tuple[ReliabilityPoint, ...]


def find_reliability(prompts: Sequence[EvaluatedPrompt]) -> Reliability | None:
    """Return the reliability of probabilities; None if no prompt has a probability."""
    known = [one for one in prompts if one.probability is not None and one.found]
    if not known:
        return None
    bins = reliability_bins(
        [one.probability or 0.0 for one in known], [1 in one.ranks for one in known]
    )
    points = tuple(
        ReliabilityPoint(
            one.predicted, one.observed, *_wilson_interval(one.observed, one.count), one.count
        )
        for one in bins
    )
    return Reliability(calibration_error(bins), len(known), points)


def find_recall(prompts: Sequence[EvaluatedPrompt]) -> list[tuple[int, float]]:
    """Return (rank, mean share of the needed skills up to that rank); empty if no
    prompt needs a skill."""
    needed = [one for one in prompts if one.needed]
    if not needed:
        return []
    return [
        (rank, sum(_share_until(one, rank) for one in needed) / len(needed))
        for rank in RECALL_RANKS
    ]


def _share_until(prompt: EvaluatedPrompt, rank: int) -> float:
    return sum(0 < one <= rank for one in prompt.ranks) / len(prompt.ranks)


def _wilson_interval(share: float, count: int) -> tuple[float, float]:
    middle = share + _Z**2 / (2 * count)
    spread = _Z * sqrt(share * (1 - share) / count + (_Z / (2 * count)) ** 2)
    scale = 1 + _Z**2 / count
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)
