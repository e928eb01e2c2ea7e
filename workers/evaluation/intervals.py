"""Bootstrap confidence intervals of means over tasks."""

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
    """The mean of `values` with the 2.5th and 97.5th percentile of resampled means (Efron, 1979).

    For a paired comparison of two configurations, pass the differences of their values by task.
    Raises ValueError for no values.
    """
    if not len(values):
        raise ValueError("no values")
    samples = np.asarray(values, dtype=np.float64)
    indices = np.random.default_rng(seed).integers(0, len(samples), (resamples, len(samples)))
    low, high = np.percentile(samples[indices].mean(axis=1), (2.5, 97.5))
    return ConfidenceInterval(float(samples.mean()), float(low), float(high))
