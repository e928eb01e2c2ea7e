"""Resolves contradicting reports of one owner about the skills of one task."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from skills.outcomes.model import Outcome
from skills.outcomes.weights import REPORTER_WEIGHTS

MAX_SKILLS = 30
"""Maximum skills considered per owner and task, since the number of pairs grows quadratically."""


def settle_reports(outcomes: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    """Return the outcomes of one query that count, by owner; a function of the set of outcomes.

    Each owner has one outcome per skill: that of the reporter with the greatest weight, and of
    these the last. Owners are sorted. The skills of an owner are sorted by place in the bundle,
    then those that were not in it, ties by skill_id; only the first MAX_SKILLS are kept. `missing`
    names no skill and is left out.
    """
    counted: defaultdict[str, dict[str, Outcome]] = defaultdict(dict)
    for one in sorted(outcomes, key=lambda one: (REPORTER_WEIGHTS[one.by], one.order)):
        if one.skill_id:
            counted[one.owner][one.skill_id] = one
    return {
        owner: sorted(
            counted[owner].values(), key=lambda one: (not one.place, one.place, one.skill_id)
        )[:MAX_SKILLS]
        for owner in sorted(counted)
    }
