"""Training of the ranker: factors of the parts of the exact score, from labelled prompts.

The factors start at 1, the shipped weights, and are drawn back to it. Training minimises the mean
negative log-likelihood of the needed skills among the candidates (softmax over a list; Cao et
al., ICML 2007) plus a penalty times the squared distance from 1. Factors are never negative, so
that more evidence never lowers a score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from config.errors import UsageError
from search.models.installed import check_installed
from search.scoring.ranker_factors import PARTS
from skills.events import QueryAsked
from tasks.query.context import QueryContext
from tasks.query.pipeline import rank_candidates
from tasks.services import Services

PENALTIES = (0.03, 0.3, 3.0)
"""Penalties to choose from by cross-validation."""

FOLDS = 5
MIN_GROUPS = 10
_INNER_FOLDS = 3
_CANDIDATES = 200
_SAMPLES = 2000

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RankedPrompt:
    """The candidates of a prompt: parts (n, PARTS), and which of them are needed, (n,).

    group: prompts of the same skills are never split between training and evaluation. weight: of
    the prompt, in training and in means.
    """

    group: str
    parts: Floats
    needed: npt.NDArray[np.bool_]
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class RankerTraining:
    """Learnt factors, and the figures of left-out prompts: shipped and learnt, each (prompts, 2).

    The figures are whether a needed skill is first, and its reciprocal rank. gain: mean gain of
    the reciprocal rank; least_gain: its 5 % quantile over resampled groups.
    """

    factors: dict[str, float]
    penalty: float
    shipped: Floats
    learnt: Floats
    gain: float
    least_gain: float

    @property
    def wins(self) -> bool:
        """Whether the learnt factors rank left-out prompts better than the shipped ones."""
        return self.least_gain > 0.0


def rank_prompt(
    services: Services, text: str, needed: Sequence[str], weight: float = 1.0
) -> RankedPrompt | None:
    """Score the candidates of a prompt; None if no needed skill is among them.

    The memory of past tasks is not used: it holds the labels if they come from outcomes.
    """
    request = QueryAsked(task=text, without=("memory",))
    context = QueryContext.create(services, request, apply_policy=False, degrade=False)
    hits = rank_candidates(context).hits[:_CANDIDATES]
    is_needed = np.array([hit.key.skill_id in needed for hit in hits], dtype=np.bool_)
    if not is_needed.any():
        return None
    parts = np.array([[hit.parts.get(name, 0.0) for name in PARTS] for hit in hits])
    return RankedPrompt(min(needed), parts, is_needed, weight)


def train_ranker(prompts: Sequence[RankedPrompt]) -> RankerTraining:
    """Learn factors, and compare them with the shipped weights on prompts that were left out.

    Raises UsageError for fewer than MIN_GROUPS groups.
    """
    groups = sorted({prompt.group for prompt in prompts})
    if len(groups) < MIN_GROUPS:
        raise UsageError(
            f"only {len(groups)} skills are among the candidates of a prompt that needs them; at "
            f"least {MIN_GROUPS} are required to compare rankings: give more prompts, and check "
            "`gt_skill_ids` with `skillbus skills list`"
        )
    shipped, learnt = np.zeros((len(prompts), 2)), np.zeros((len(prompts), 2))
    ones = np.ones(len(PARTS))
    for fold in range(FOLDS):
        inside, outside = _split(prompts, groups, fold, FOLDS)
        chosen = [prompts[place] for place in inside]
        factors = fit_factors(chosen, choose_penalty(chosen))
        for place in outside:
            shipped[place] = measure(prompts[place], ones)
            learnt[place] = measure(prompts[place], factors)
    penalty = choose_penalty(prompts)
    factors = fit_factors(prompts, penalty)
    weights = np.array([prompt.weight for prompt in prompts])
    gains = (learnt - shipped)[:, 1]
    owners = np.array([groups.index(prompt.group) for prompt in prompts])
    return RankerTraining(
        dict(zip(PARTS, factors.tolist(), strict=True)),
        penalty,
        shipped,
        learnt,
        float(np.average(gains, weights=weights)),
        _least_mean(gains, weights, owners, len(groups)),
    )


def choose_penalty(prompts: Sequence[RankedPrompt]) -> float:
    """Return the penalty with the best reciprocal rank on left-out groups."""
    groups = sorted({prompt.group for prompt in prompts})

    def reciprocal_rank(penalty: float) -> float:
        total = 0.0
        for fold in range(_INNER_FOLDS):
            inside, outside = _split(prompts, groups, fold, _INNER_FOLDS)
            factors = fit_factors([prompts[place] for place in inside], penalty)
            total += sum(
                prompts[place].weight * measure(prompts[place], factors)[1] for place in outside
            )
        return total

    return max(PENALTIES, key=reciprocal_rank)


def fit_factors(prompts: Sequence[RankedPrompt], penalty: float) -> Floats:
    """Return the factor of each of PARTS, at least 0."""
    check_installed("scipy", purpose="training a ranking")
    from scipy.optimize import minimize  # slow import

    def loss(factors: Floats) -> tuple[float, Floats]:
        total, gradient = 0.0, np.zeros(len(factors))
        for prompt in prompts:
            scores = prompt.parts @ factors
            shares = np.exp(scores - scores.max())
            shares /= shares.sum()
            right = np.where(prompt.needed, shares, 0.0)
            mass = max(float(right.sum()), 1e-12)
            total -= prompt.weight * float(np.log(mass))
            gradient += prompt.weight * ((shares - right / mass) @ prompt.parts)
        away = factors - 1.0
        size = max(sum(prompt.weight for prompt in prompts), 1e-9)
        return total / size + penalty * float(away @ away), gradient / size + 2.0 * penalty * away

    found = minimize(
        loss,
        np.ones(len(PARTS)),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, None)] * len(PARTS),
        options={"maxiter": 100},
    )
    return np.asarray(found.x, dtype=np.float64)


def measure(prompt: RankedPrompt, factors: Floats) -> tuple[float, float]:
    """Return whether a needed skill is first, and its reciprocal rank; ties count as behind."""
    scores = prompt.parts @ factors
    best = scores[prompt.needed].max()
    rank = int((scores[~prompt.needed] >= best).sum()) + 1
    return float(rank == 1), 1.0 / rank


def _split(
    prompts: Sequence[RankedPrompt], groups: Sequence[str], fold: int, folds: int
) -> tuple[list[int], list[int]]:
    """Return the places of the prompts inside and outside of training."""
    left_out = set(groups[fold::folds])
    outside = [place for place, prompt in enumerate(prompts) if prompt.group in left_out]
    inside = [place for place, prompt in enumerate(prompts) if prompt.group not in left_out]
    return inside, outside


def _least_mean(
    gains: Floats, weights: Floats, owners: npt.NDArray[np.int64], groups: int
) -> float:
    """Return the 5 % quantile of the mean gain over resampled groups (bootstrap)."""
    sums = np.bincount(owners, weights=gains * weights, minlength=groups)
    sizes = np.bincount(owners, weights=weights, minlength=groups)
    drawn = np.random.default_rng(0).integers(groups, size=(_SAMPLES, groups))
    return float(np.quantile(sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1), 0.05))
