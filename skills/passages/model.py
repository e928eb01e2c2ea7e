"""Linear model that estimates from `features` how much a query needs a passage.

The need of a passage is a weighted sum of its features. The weights minimise the tokens of passages
above the lowest need of any required passage, averaged over queries; the optimisation starts from
method F's margin. Thresholds relate a lowest selected need to the share of required passages that
are missed. `tests/bench/choose_paging.py` learns both from queries with labelled lines, over skills
of several collections. There are two models: with section vectors, and by words only.
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
    """Weights and thresholds of the model.

    weights: one per feature of FEATURES. constant: added to the weighted sum. missed: ascending
    thresholds; a share i / n of the required passages, of skills left out of the fit, has a need
    below the i-th of n + 1. short: the same for the share of queries that have any required passage
    with a lower need.
    """

    weights: Floats
    constant: float
    missed: Floats
    short: Floats

    def needs(self, features: Floats) -> Floats:
        """Return the need of each passage (P,); a higher value means that it is needed more."""
        return np.asarray(features @ self.weights + self.constant, np.float32)

    def threshold(self, miss: float) -> float:
        """Return the need below which a share `miss` of the required passages lies."""
        if miss <= 0:
            return -np.inf
        return float(np.interp(miss, np.linspace(0, 1, len(self.missed)), self.missed))

    def shortfall(self, need: float) -> float:
        """Return the share of queries for which passages with at least this need do not suffice."""
        return float(np.interp(need, self.short, np.linspace(0, 1, len(self.short))))


@lru_cache(maxsize=1)
def load_need_models() -> dict[str, NeedModel]:
    """Return the models of the package: `vectors`, and `words` for skills without vectors."""
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
