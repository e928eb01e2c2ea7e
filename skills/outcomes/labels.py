"""Labels of a past task: which skills helped and which were rejected, by owner."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from skills.outcomes.model import Outcome, OutcomeKind, TaskResult
from skills.outcomes.settle import settle_reports
from skills.outcomes.weights import REPORTER_WEIGHTS, USED_SHARE

_HELPED = (OutcomeKind.USED, OutcomeKind.HELPED)


class SkillLabel(NamedTuple):
    """The judgement of one owner about a skill in a past task.

    day: day of the report, in days from the epoch. helped, rejected: weights, multiples of 1/4; one
    of them is 0.
    """

    skill_id: str
    owner: str
    day: int
    helped: float = 0.0
    rejected: float = 0.0


def settle_labels(outcomes: Iterable[Outcome]) -> tuple[SkillLabel, ...]:
    """Return the labels of one answered query, sorted by skill and owner.

    They are a function of the set of outcomes. `settle_reports` resolves contradictions. A skill
    that superseded another counts as helpful. `used` in a failed task gives no label, since the
    task may have failed for another reason.
    """
    labels: list[SkillLabel] = []
    for owner, settled in settle_reports(outcomes).items():
        labels += _label_skills(owner, settled)
    return tuple(sorted(labels))


def _label_skills(owner: str, settled: Sequence[Outcome]) -> list[SkillLabel]:
    helped: dict[str, SkillLabel] = {}
    rejected: dict[str, SkillLabel] = {}
    for one in settled:
        weight = REPORTER_WEIGHTS[one.by]
        if one.kind is OutcomeKind.USED and one.task_result == TaskResult.FAILED:
            continue
        if one.kind in _HELPED:
            share = USED_SHARE if one.kind is OutcomeKind.USED else 1.0
            helped[one.skill_id] = SkillLabel(one.skill_id, owner, one.day, helped=weight * share)
        else:
            rejected[one.skill_id] = SkillLabel(one.skill_id, owner, one.day, rejected=weight)
    for one in settled:
        if one.kind is OutcomeKind.SUPERSEDED and one.other and one.other not in rejected:
            label = SkillLabel(one.other, owner, one.day, helped=REPORTER_WEIGHTS[one.by])
            helped.setdefault(one.other, label)
    return [*helped.values(), *rejected.values()]
