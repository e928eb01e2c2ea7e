"""How much the report of each party counts."""

from __future__ import annotations

from collections.abc import Mapping

from skills.outcomes.model import Reporter

REPORTER_WEIGHTS: Mapping[Reporter, float] = {
    Reporter.AGENT: 0.5,
    Reporter.VERIFIER: 1.0,
    Reporter.PERSON: 1.0,
}
"""An agent judges its own work. Multiples of 1/4, so that sums are exact in any order."""

USED_SHARE = 0.5
"""Of a report that a skill was used, as a share of one that it helped."""

TRUSTED_OWNERS = frozenset({"", "anonymous"})
"""The user of this machine, and a caller without a token on loopback."""
