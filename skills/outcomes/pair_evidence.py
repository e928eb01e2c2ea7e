"""What past tasks say about two skills: whether they help together, and whether they conflict.

All numbers are functions of the set of reports. Weights of reports are multiples of 1/4, so that
their sums are exact in any order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from skills.outcomes.counting import NOTHING, CountingRules, Tally
from skills.outcomes.task_report import TaskReport

_PRIOR_TASKS = 1.0
"""Tasks without the other skill that a skill is taken to have helped in, before any report."""

_ADAPTING_PRIOR = 2.0
_LEAST_FACTOR = 0.25
_LEAST_CONFLICT_WEIGHT = 1.0
"""One verifier or person, or two tasks of agents."""

_CHANCE = 0.01
"""Conflicts are looked for among many pairs, so .05 would give many by chance."""


@dataclass(frozen=True, slots=True)
class PairEvidence:
    """Tallies of two skills, `one` and `other`.

    one_helped: tasks in which it helped. together: both helped. other_rejected: one helped, and the
    other was sent along and failed, was rejected or superseded; one_rejected: the other way round.
    same_job: one was rejected as redundant to the other, or superseded by it. incompatible: one was
    rejected because of the other. failed: both failed in one task. one_alone, other_alone: (helped,
    failed) in tasks without the other; counted only where both failed in one task.
    """

    one_helped: Tally = NOTHING
    together: Tally = NOTHING
    other_rejected: Tally = NOTHING
    one_rejected: Tally = NOTHING
    same_job: Tally = NOTHING
    incompatible: Tally = NOTHING
    failed: Tally = NOTHING
    one_alone: tuple[Tally, Tally] = (NOTHING, NOTHING)
    other_alone: tuple[Tally, Tally] = (NOTHING, NOTHING)

    @property
    def companion_weight(self) -> float:
        """Smoothed share of the tasks in which `one` helped and the other did too, in [0, 1).

        A skill that helps with everything is thereby no companion of everything. Tasks in which the
        other was sent along and rejected count once more.
        """
        tried = self.one_helped.weight + self.other_rejected.weight + _PRIOR_TASKS
        return self.together.weight / tried

    @property
    def is_incompatible(self) -> bool:
        """Whether reports name the two as incompatible, more than they helped together."""
        weight = self.incompatible.weight
        return weight >= _LEAST_CONFLICT_WEIGHT and weight > self.together.weight

    @property
    def fails_together(self) -> bool:
        """Whether the two fail together more often than two skills that do not affect each other.

        Both must have helped without the other. If neither affected the other, both would help
        with the product of their smoothed rates of success; so few successes in so many tasks must
        then be less likely than _CHANCE (binomial distribution).
        """
        rates = [
            (helped.tasks + 1) / (helped.tasks + failed.tasks + 2)
            for helped, failed in (self.one_alone, self.other_alone)
        ]
        if not self.failed.tasks or not (self.one_alone[0].tasks and self.other_alone[0].tasks):
            return False
        tried = self.failed.tasks + self.together.tasks
        return _at_most(self.together.tasks, tried, rates[0] * rates[1]) < _CHANCE

    def loss(self, against: float, confirming: float) -> float:
        """By what a link's weight is multiplied: 1 without rejections, at least _LEAST_FACTOR.

        The smoothed share of confirming tasks, as the mean of a Beta distribution whose prior has
        _ADAPTING_PRIOR confirming ones.
        """
        whole = confirming + _ADAPTING_PRIOR
        return max(whole / (whole + against), _LEAST_FACTOR)

    def gain(self) -> float:
        """Which share of what a link lacks it gains from tasks in which both helped, in [0, 1)."""
        return self.together.weight / (self.together.weight + _ADAPTING_PRIOR)


class Reports(Protocol):
    """Reports by skill."""

    def get_reports(self, skill_id: str) -> Sequence[TaskReport]:
        """All that are about a skill."""
        ...

    def get_shared(self, one: str, other: str) -> Sequence[TaskReport]:
        """All that are about both skills."""
        ...


def weigh_pair(
    one: str, other: str, one_helped: Tally, reports: Reports, rules: CountingRules
) -> PairEvidence:
    """The evidence about two skills. one_helped: from `count_helped`."""
    both = (one, other)
    shared = reports.get_shared(one, other)

    def count(found: Iterable[tuple[TaskReport, float]]) -> Tally:
        return rules.count(both, found)

    failed = count(
        (report, min(report.failed[one], report.failed[other]))
        for report in shared
        if one in report.failed and other in report.failed
    )
    alone = [
        _count_alone(skill_id, without, reports.get_reports(skill_id), rules)
        if failed.tasks
        else (NOTHING, NOTHING)
        for skill_id, without in (both, both[::-1])
    ]
    return PairEvidence(
        one_helped,
        together=count(
            (report, min(report.helped[one], report.helped[other]))
            for report in shared
            if one in report.helped and other in report.helped
        ),
        other_rejected=count(_rejected_along(one, other, shared)),
        one_rejected=count(_rejected_along(other, one, shared)),
        same_job=count(_named(both, ((report, report.same_job) for report in shared))),
        incompatible=count(_named(both, ((report, report.incompatible) for report in shared))),
        failed=failed,
        one_alone=alone[0],
        other_alone=alone[1],
    )


def count_helped(skill_id: str, reports: Iterable[TaskReport], rules: CountingRules) -> Tally:
    """The tasks in which a skill helped."""
    helped = ((one, one.helped[skill_id]) for one in reports if skill_id in one.helped)
    return rules.count([skill_id], helped)


def _named(
    both: tuple[str, str],
    found: Iterable[tuple[TaskReport, Mapping[tuple[str, str], float]]],
) -> Iterable[tuple[TaskReport, float]]:
    """The reports that name one of the two for the other."""
    for report, named in found:
        weights = [named[pair] for pair in (both, both[::-1]) if pair in named]
        if weights:
            yield report, max(weights)


def _rejected_along(
    one: str, other: str, reports: Iterable[TaskReport]
) -> Iterable[tuple[TaskReport, float]]:
    for report in reports:
        if one in report.helped and other in report.unhelpful:
            yield report, min(report.helped[one], report.unhelpful[other])


def _count_alone(
    one: str, other: str, reports: Iterable[TaskReport], rules: CountingRules
) -> tuple[Tally, Tally]:
    alone = [report for report in reports if other not in report.skill_ids]
    failed = ((report, report.failed[one]) for report in alone if one in report.failed)
    return count_helped(one, alone, rules), rules.count([one], failed)


def _at_most(successes: int, trials: int, rate: float) -> float:
    """The probability of at most so many successes, each with this rate."""
    return math.fsum(
        math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(successes + 1)
    )
