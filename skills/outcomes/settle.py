"""Settles what one owner reported about the skills of one task, where reports contradict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from skills.outcomes.model import Outcome
from skills.outcomes.weights import REPORTER_WEIGHTS

MAX_SKILLS = 30
"""Skills of one owner and task that are considered; their pairs grow with the square."""


def settle_reports(outcomes: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    """The outcomes of one query that count, by owner, in order of the owners: one a skill, of the
    weightiest party, and of these the last. A function of the set of outcomes.

    Of each owner the first MAX_SKILLS by place in the bundle, then those that were not in it, ties
    by skill_id. `missing` names no skill and is left out.
    """
    counted: defaultdict[str, dict[str, Outcome]] = defaultdict(dict)
    for one in sorted(outcomes, key=lambda one: (REPORTER_WEIGHTS[one.by], one.reported, one.key)):
        if one.skill_id:
            counted[one.owner][one.skill_id] = one
    return {
        owner: sorted(
            counted[owner].values(), key=lambda one: (not one.place, one.place, one.skill_id)
        )[:MAX_SKILLS]
        for owner in sorted(counted)
    }
