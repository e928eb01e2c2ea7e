"""The model of which passages a query needs: linear in `features`, learnt from labelled lines.

A passage's need is a weighted sum of its features. The weights minimise the tokens above the lowest
need of any required passage, averaged over queries, starting from method F's margin; the thresholds
say what is missed where selection stops at a need. `tests/bench/choose_paging.py` learns both, from
queries with required lines over skills of several collections; there are two sets of them, with
section vectors and by words alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

import numpy as np

from skills.passages.features import FEATURES
from skills.passages.inputs import Floats

_FILE = "needs.json"


@dataclass(frozen=True, slots=True)
class NeedModel:
    """Weights and thresholds.

    weights: one of each of FEATURES; constant is added. missed: thresholds ascending; at the i-th
    of n + 1, i / n of the required passages of skills left out of the fit have a lower need.
    short: the same for queries of which any required passage has a lower need.
    """

    weights: Floats
    constant: float
    missed: Floats
    short: Floats

    def needs(self, features: Floats) -> Floats:
        """The need of each passage (P,), higher for what is needed more."""
        return np.asarray(features @ self.weights + self.constant, np.float32)

    def threshold(self, miss: float) -> float:
        """The need below which this share of the required passages lies."""
        if miss <= 0:
            return -np.inf
        return float(np.interp(miss, np.linspace(0, 1, len(self.missed)), self.missed))

    def shortfall(self, need: float) -> float:
        """Share of queries for which a selection that stops at this need is not sufficient."""
        return float(np.interp(need, self.short, np.linspace(0, 1, len(self.short))))


@lru_cache(maxsize=1)
def load_need_models() -> dict[str, NeedModel]:
    """The models of the package: `vectors`, and `words` for skills without section vectors."""
    text = resources.files(__package__).joinpath(_FILE).read_text(encoding="utf-8")
    return {
        name: NeedModel(
            np.array([part["weights"][feature] for feature in FEATURES], np.float32),
            part["constant"],
            np.array(part["missed"], np.float32),
            np.array(part["short"], np.float32),
        )
        for name, part in json.loads(text).items()
    }
