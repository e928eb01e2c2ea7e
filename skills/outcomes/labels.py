"""Labels of a past task: what its owners reported of each skill, settled where they contradict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from skills.outcomes.model import Outcome, OutcomeKind, TaskResult
from skills.outcomes.weights import REPORTER_WEIGHTS, USED_SHARE

MAX_LABELS = 30
"""Skills of one task that one owner labels at most."""

_HELPED = (OutcomeKind.USED, OutcomeKind.HELPED)


class SkillLabel(NamedTuple):
    """What one owner said of a skill in a past task.

    day: of the report, in days from the epoch. helped, rejected: weights, multiples of 1/4; a label
    has one of them.
    """

    skill_id: str
    owner: str
    day: int
    helped: float = 0.0
    rejected: float = 0.0


def settle_labels(outcomes: Iterable[Outcome]) -> tuple[SkillLabel, ...]:
    """The labels of one answered query, sorted by skill and owner: a function of the set of its
    outcomes.

    Of several reports of an owner about a skill counts that of the weightiest party, and of these
    the last. The skill that superseded another helped. `missing` is no label, since it names no
    skill, nor is `used` in a task that failed, since the fault may lie elsewhere.
    """
    counted: defaultdict[str, dict[str, Outcome]] = defaultdict(dict)
    ordered = sorted(outcomes, key=lambda one: (REPORTER_WEIGHTS[one.by], one.reported, one.key))
    for one in ordered:
        if one.skill_id:
            counted[one.owner][one.skill_id] = one
    labels: list[SkillLabel] = []
    for owner, by_skill in counted.items():
        labels += _label_skills(owner, by_skill.values())[:MAX_LABELS]
    return tuple(sorted(labels))


def _label_skills(owner: str, settled: Iterable[Outcome]) -> list[SkillLabel]:
    """The labels of an owner, those of the first places in the bundle first."""
    ordered = sorted(settled, key=lambda one: (not one.place, one.place, one.skill_id))
    helped: dict[str, SkillLabel] = {}
    rejected: dict[str, SkillLabel] = {}
    for one in ordered:
        weight = REPORTER_WEIGHTS[one.by]
        if one.kind is OutcomeKind.USED and one.task_result == TaskResult.FAILED:
            continue
        if one.kind in _HELPED:
            share = USED_SHARE if one.kind is OutcomeKind.USED else 1.0
            helped[one.skill_id] = SkillLabel(one.skill_id, owner, one.day, helped=weight * share)
        else:
            rejected[one.skill_id] = SkillLabel(one.skill_id, owner, one.day, rejected=weight)
    for one in ordered:
        if one.kind is OutcomeKind.SUPERSEDED and one.other and one.other not in rejected:
            label = SkillLabel(one.other, owner, one.day, helped=REPORTER_WEIGHTS[one.by])
            helped.setdefault(one.other, label)
    return [*helped.values(), *rejected.values()]
