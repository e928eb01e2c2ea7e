"""Reports of one owner about the skills of one task, without contradictions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from skills.bundle.rejection import RejectionReason
from skills.outcomes.model import Outcome, OutcomeKind, TaskResult
from skills.outcomes.settle import settle_reports
from skills.outcomes.weights import REPORTER_WEIGHTS, USED_SHARE

_UNHELPFUL = (OutcomeKind.FAILED, OutcomeKind.REJECTED, OutcomeKind.SUPERSEDED)


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The settled reports of one owner about one answered query.

    day: day of the last report. helped: skill_id -> weight, for skills that helped or were used.
    unhelpful: the same for skills that were sent and failed, were rejected or superseded. failed:
    the same for skills that failed, or were used in a failed task. incompatible, same_job:
    (skill_id, other skill named in its report) -> weight. skill_ids: all skills of the reports.
    """

    query_id: str
    owner: str
    day: int
    helped: Mapping[str, float] = field(default_factory=dict)
    unhelpful: Mapping[str, float] = field(default_factory=dict)
    failed: Mapping[str, float] = field(default_factory=dict)
    incompatible: Mapping[tuple[str, str], float] = field(default_factory=dict)
    same_job: Mapping[tuple[str, str], float] = field(default_factory=dict)
    skill_ids: frozenset[str] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        pairs = {end for pair in (*self.incompatible, *self.same_job) for end in pair}
        object.__setattr__(
            self,
            "skill_ids",
            frozenset({*self.helped, *self.unhelpful, *self.failed, *pairs}),
        )


def build_reports(outcomes: Iterable[Outcome]) -> list[TaskReport]:
    """Return the report of each owner about one query; a function of the set of outcomes."""
    return [_build_report(settled) for settled in settle_reports(outcomes).values()]


def _build_report(settled: Sequence[Outcome]) -> TaskReport:
    helped: dict[str, float] = {}
    unhelpful: dict[str, float] = {}
    failed: dict[str, float] = {}
    incompatible: dict[tuple[str, str], float] = {}
    same_job: dict[tuple[str, str], float] = {}
    for one in settled:
        weight = REPORTER_WEIGHTS[one.by]
        is_used = one.kind is OutcomeKind.USED
        if one.kind is OutcomeKind.FAILED or (is_used and one.task_result == TaskResult.FAILED):
            failed[one.skill_id] = weight
        elif one.kind is OutcomeKind.HELPED or is_used:
            helped[one.skill_id] = weight * (USED_SHARE if is_used else 1.0)
        if one.kind in _UNHELPFUL and one.place:
            unhelpful[one.skill_id] = weight
        if one.other:
            named = incompatible if one.reason == RejectionReason.INCOMPATIBLE else same_job
            named[one.skill_id, one.other] = weight
    first, day = settled[0], max(one.day for one in settled)
    return TaskReport(
        first.query_id, first.owner, day, helped, unhelpful, failed, incompatible, same_job
    )
