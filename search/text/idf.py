"""Inverse document frequency."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def compute_idf(frequencies: npt.NDArray[np.int64], documents: int) -> npt.NDArray[np.float64]:
    """Return ln(1 + (N - df + .5) / (df + .5)) of each df, not negative."""
    rest = np.maximum(documents - frequencies, 0)
    return np.asarray(np.log1p((rest + 0.5) / (frequencies + 0.5)), dtype=np.float64)
