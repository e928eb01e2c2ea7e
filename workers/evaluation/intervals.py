"""Bootstrap intervals: how far a mean over few tasks can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

RESAMPLES, SEED = 10_000, 42


class ConfidenceInterval(NamedTuple):
    """A mean and its 95% interval."""

    mean: float
    low: float
    high: float


def bootstrap_interval(
    values: Sequence[float], resamples: int = RESAMPLES, seed: int = SEED
) -> ConfidenceInterval:
    """The mean of some tasks' figures with percentiles of resampled means (Efron, 1979).

    Given the same seed and number of tasks, every call draws the same tasks: intervals of the
    differences of two configurations are paired by handing in the differences. Raises ValueError
    without values.
    """
    if not len(values):
        raise ValueError("no values: nothing can be said about a mean of nothing")
    figures = np.asarray(values, dtype=np.float64)
    drawn = np.random.default_rng(seed).integers(0, len(figures), (resamples, len(figures)))
    low, high = np.percentile(figures[drawn].mean(axis=1), (2.5, 97.5))
    return ConfidenceInterval(float(figures.mean()), float(low), float(high))
