"""Bootstrap confidence intervals over tasks, or over groups of tasks that belong together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from tasks.evaluations.model import Measure

RESAMPLES, SEED = 10_000, 42

_DRAWN = 2_000_000
"""Maximum of values drawn at once, which bounds the memory; the intervals do not depend on it."""

Floats = npt.NDArray[np.float64]


def bootstrap_interval(
    values: Sequence[float], resamples: int = RESAMPLES, seed: int = SEED
) -> Measure:
    """Return the mean of `values` and the 2.5th and 97.5th percentile of
    resampled means (Efron, 1979).

    For a paired comparison of two configurations, pass the differences of their values by task.
    Raises ValueError without values.
    """
    if not len(values):
        raise ValueError("no values")
    samples = np.asarray(values, dtype=np.float64)
    generator, count = np.random.default_rng(seed), len(samples)
    means = np.empty(resamples)
    at_once = max(1, _DRAWN // count)
    for first in range(0, resamples, at_once):
        part = means[first : first + at_once]
        part[:] = samples[generator.integers(0, count, (len(part), count))].mean(axis=1)
    low, high = np.percentile(means, (2.5, 97.5))
    return Measure(float(samples.mean()), float(low), float(high))


def bootstrap_groups(
    rows: Floats,
    groups: Sequence[str],
    statistic: Callable[[Floats], Floats],
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Measure:
    """Return a statistic of column sums, with the 2.5th and 97.5th
    percentile over resampled groups.

    Tasks of one repository are alike, so whole groups are drawn with replacement (Field and Welsh,
    JRSS B 69, 2007, the cluster bootstrap). rows: (tasks, columns). groups: of each row.
    statistic: function of column sums (samples, columns) that returns (samples,); a mean is the sum
    of values over the sum of a column of ones. Raises ValueError without rows.
    """
    if not len(rows):
        raise ValueError("no rows")
    names, members = np.unique(np.asarray(groups), return_inverse=True)
    sums = np.zeros((len(names), rows.shape[1]))
    np.add.at(sums, members, rows)
    generator, count = np.random.default_rng(seed), len(names)
    share = np.full(count, 1 / count)
    resampled = np.empty((resamples, rows.shape[1]))
    at_once = max(1, _DRAWN // count)
    for first in range(0, resamples, at_once):
        part = resampled[first : first + at_once]
        part[:] = generator.multinomial(count, share, len(part)) @ sums
    found = statistic(sums.sum(axis=0, keepdims=True))
    low, high = np.nanpercentile(statistic(resampled), (2.5, 97.5))
    return Measure(float(found[0]), float(low), float(high))
