"""What past tasks say about two skills: whether they help together, and whether they conflict.

All numbers are functions of the set of reports. Weights of reports are multiples of 1/4, so that
their sums are exact in any order.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from skills.outcomes.counting import NOTHING, CountedTasks, CountingRules, Tally
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
    rejected because of the other. failed: both failed in one task. one_alone, other_alone: numbers
    of tasks in which it helped, and failed, by reports that do not name the other; counted only if
    both failed in some task.
    """

    one_helped: Tally = NOTHING
    together: Tally = NOTHING
    other_rejected: Tally = NOTHING
    one_rejected: Tally = NOTHING
    same_job: Tally = NOTHING
    incompatible: Tally = NOTHING
    failed: Tally = NOTHING
    one_alone: tuple[int, int] = (0, 0)
    other_alone: tuple[int, int] = (0, 0)

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
        alone = (self.one_alone, self.other_alone)
        if not self.failed.tasks or not all(helped for helped, _ in alone):
            return False
        rates = [(helped + 1) / (helped + failed + 2) for helped, failed in alone]
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


class SkillTotals:
    """The tasks in which a skill helped, and failed, from all reports that are about it."""

    def __init__(
        self, skill_id: str, reports: Collection[TaskReport], rules: CountingRules
    ) -> None:
        self._skill_id = skill_id
        self._reports = reports
        self._rules = rules
        self.helped = rules.count([skill_id], self._weigh_helped())

    def _weigh_helped(self) -> Iterator[tuple[TaskReport, float]]:
        name = self._skill_id
        return ((one, one.helped[name]) for one in self._reports if name in one.helped)

    @cached_property
    def _counted(self) -> tuple[CountedTasks, CountedTasks]:
        name, rules = self._skill_id, self._rules
        failed = ((one, one.failed[name]) for one in self._reports if name in one.failed)
        return CountedTasks(name, self._weigh_helped(), rules), CountedTasks(name, failed, rules)

    def count_alone(self, shared: Collection[TaskReport]) -> tuple[int, int]:
        """Numbers of tasks in which it helped, and failed, by all reports but these.

        The difference of two tallies would not do: each has its own limits and its own owners.
        """
        helped, failed = self._counted
        return helped.count_without(shared), failed.count_without(shared)


def weigh_pair(
    both: tuple[str, str],
    totals: tuple[SkillTotals, SkillTotals],
    shared: Collection[TaskReport],
    rules: CountingRules,
) -> PairEvidence:
    """The evidence about two skills, from their totals and the reports that are about both."""
    one, other = both

    def count(found: Iterable[tuple[TaskReport, float]]) -> Tally:
        return rules.count(both, found)

    failed = count(
        (report, min(report.failed[one], report.failed[other]))
        for report in shared
        if one in report.failed and other in report.failed
    )
    one_alone, other_alone = (
        total.count_alone(shared) if failed.tasks else (0, 0) for total in totals
    )
    return PairEvidence(
        totals[0].helped,
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
        one_alone=one_alone,
        other_alone=other_alone,
    )


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


def _at_most(successes: int, trials: int, rate: float) -> float:
    """The probability of at most so many successes, each with this rate, between 0 and 1."""
    hit, miss = math.log(rate), math.log1p(-rate)
    return math.fsum(
        math.exp(_log_choose(trials, k) + k * hit + (trials - k) * miss)
        for k in range(successes + 1)
    )


def _log_choose(trials: int, k: int) -> float:
    return math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
