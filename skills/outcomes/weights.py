"""Weights of reports by reporter."""

from __future__ import annotations

from collections.abc import Mapping

from skills.outcomes.model import Reporter

REPORTER_WEIGHTS: Mapping[Reporter, float] = {
    Reporter.AGENT: 0.5,
    Reporter.VERIFIER: 1.0,
    Reporter.PERSON: 1.0,
}
"""Weight by reporter; an agent counts half, since it judges its own work.

Weights are multiples of 1/4, so that sums are exact in any order.
"""

USED_SHARE = 0.5
"""Weight of the report that a skill was used, as a share of the report that it helped."""

TRUSTED_OWNERS = frozenset({"", "anonymous"})
"""Owners trusted by default: the user of this machine, and callers on loopback without a token."""
