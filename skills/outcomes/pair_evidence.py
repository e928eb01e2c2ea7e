"""Evidence from past tasks about pairs of skills: whether they help together or conflict.

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
"""Prior: tasks in which a skill is assumed to have helped without the other, before any report."""

_ADAPTING_PRIOR = 2.0
"""Prior: tasks that are assumed to confirm a link, before any report."""

_MIN_FACTOR = 0.25
"""Minimum factor on the weight of a link, however many tasks speak against it."""

_MIN_CONFLICT_WEIGHT = 1.0
"""Minimum weight of reports of incompatibility: that of one task reported by a verifier or person,
or of two tasks reported by agents."""

_CHANCE = 0.01
"""Significance level of conflicts; with .05, the many tested pairs would give many by chance."""


@dataclass(frozen=True, slots=True)
class PairEvidence:
    """Tallies of tasks of two skills, `one` and `other`.

    one_helped: `one` helped. together: both helped. other_rejected: `one` helped, and `other` was
    sent too and failed, was rejected or superseded; one_rejected: the reverse. same_job: either was
    rejected as redundant to the other, or superseded by it. incompatible: either was rejected
    because of the other. failed: both failed in one task. one_alone, other_alone: numbers of tasks
    in which the skill helped, and in which it failed, by reports that are not about the other;
    counted only if both failed in some task.
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
        """Smoothed share of the tasks of `one` in which `other` helped too, in [0, 1).

        Since it is a share, a skill that helps with most tasks gets no strong companions. Tasks in
        which `other` was sent too and rejected count once more.
        """
        tried = self.one_helped.weight + self.other_rejected.weight + _PRIOR_TASKS
        return self.together.weight / tried

    @property
    def is_incompatible(self) -> bool:
        """Whether reports of incompatibility weigh enough, and more than those of joint help."""
        weight = self.incompatible.weight
        return weight >= _MIN_CONFLICT_WEIGHT and weight > self.together.weight

    @property
    def fails_together(self) -> bool:
        """Whether the two fail together more often than independent skills would.

        Each must have helped without the other. The success rate of independent skills is the
        product of their smoothed success rates; with this rate, at most as many successes as
        observed must have a probability below _CHANCE (binomial distribution).
        """
        alone = (self.one_alone, self.other_alone)
        if not self.failed.tasks or not all(helped for helped, _ in alone):
            return False
        rates = [(helped + 1) / (helped + failed + 2) for helped, failed in alone]
        tried = self.failed.tasks + self.together.tasks
        return _at_most(self.together.tasks, tried, rates[0] * rates[1]) < _CHANCE

    def rejection_factor(self, against: float, confirming: float) -> float:
        """Return the factor for a link's weight: 1 without rejections, at least _MIN_FACTOR.

        It is the smoothed share of confirming tasks: the mean of a Beta distribution whose prior
        has _ADAPTING_PRIOR confirming tasks.
        """
        whole = confirming + _ADAPTING_PRIOR
        return max(whole / (whole + against), _MIN_FACTOR)

    def confirmed_share(self) -> float:
        """Return the share of a link's missing weight that joint help adds, in [0, 1).

        The missing weight is the difference from the weight of a confirmed link.
        """
        return self.together.weight / (self.together.weight + _ADAPTING_PRIOR)


class SkillTotals:
    """Tasks in which a skill helped, and tasks in which it failed, from all reports about it."""

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
        """Return in how many tasks the skill helped, and failed, by all reports except `shared`.

        The difference of two tallies would be wrong, since limits and owners apply to each tally.
        """
        helped, failed = self._counted
        return helped.count_without(shared), failed.count_without(shared)


def weigh_pair(
    both: tuple[str, str],
    totals: tuple[SkillTotals, SkillTotals],
    shared: Collection[TaskReport],
    rules: CountingRules,
) -> PairEvidence:
    """Return the evidence about two skills, from their totals and the reports about both."""
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
    """Yield the reports that name one of the two skills as the reason against the other."""
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
    """Return the probability of at most `successes` in `trials`; `rate` is between 0 and 1."""
    hit, miss = math.log(rate), math.log1p(-rate)
    return math.fsum(
        math.exp(_log_choose(trials, k) + k * hit + (trials - k) * miss)
        for k in range(successes + 1)
    )


def _log_choose(trials: int, k: int) -> float:
    return math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
