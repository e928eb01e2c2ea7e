"""Least-squares line, by which missing scores are predicted."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def predict_linearly(known: Floats, values: Floats, others: Floats) -> Floats:
    """Return the least-squares line of `values` over `known`, both (n,), at `others`, (m,)."""
    middle = values.mean()
    deviation = known - known.mean()
    spread = float(deviation @ deviation)
    slope = float(deviation @ (values - middle)) / spread if spread > 1e-9 else 0.0
    return np.asarray(middle + slope * (others - known.mean()), dtype=np.float64)
