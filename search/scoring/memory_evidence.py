"""Evidence about skills from past tasks near a task: weighed by nearness, day, and owner.

Reports that a skill helped in near tasks are a Beta count (Gelman et al., *Bayesian Data Analysis*,
2.4): the posterior mean of the share of near tasks that a skill helps with, less that of the prior,
moves the skill's score. Two limits apply to owners that are not trusted: on their tasks per day,
and on evidence from fewer than `least_owners` of them.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from skills.outcomes.labels import SkillLabel
from skills.outcomes.weights import TRUSTED_OWNERS
from skills.record import get_source_id

Floats = npt.NDArray[np.float64]


_OWNER_SHARE = 0.25
"""Maximum share of the counted near tasks that may be of one untrusted owner, so that an owner that
reports a lot does not hide the reports of others."""


_SAME_COSINE = 0.9995
"""Cosine from which on two tasks are the same; that of equal texts is 1 but for rounding."""


class Counts(NamedTuple):
    """Weighed reports about a skill: it helped with near tasks, was rejected for near ones, and was
    refused, that is rejected for the same task."""

    helped: float = 0.0
    rejected: float = 0.0
    refused: float = 0.0

    def __add__(self, other: object) -> Counts:
        """Return the sum of both, count by count."""
        if not isinstance(other, Counts):
            return NotImplemented
        return Counts(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


@dataclass(frozen=True, slots=True)
class MemoryWeights:
    """Constants of the memory, chosen by `tests/bench/choose_memory.py`.

    nearest, same: cosines, in standard deviations above the mean of unrelated tasks, from which a
    past task counts at all and in full. words_nearest, words_same: likewise cosines of words, for
    tasks without vectors. sharpness: exponent of the nearness between them. tasks: near tasks that
    count. prior: the share of near tasks that a skill helps with before any was seen. strength: of
    the prior, in tasks. rejected: weight of a rejection in a near task relative to that of a report
    that the skill helped. height: score per probability. half_life: days in which a report loses
    half of its weight. repeated: number of near tasks that the same task, asked before, counts for;
    not measured, but chosen so that one report about it outweighs a middling lead in the score.
    """

    nearest: float = 1.5
    same: float = 5.0
    words_nearest: float = 0.02
    words_same: float = 0.25
    sharpness: float = 1.0
    tasks: int = 32
    prior: float = 0.2
    strength: float = 3.0
    rejected: float = 0.15
    height: float = 10.0
    half_life: float = 180.0
    repeated: float = 8.0

    def nearness(self, deviations: Floats) -> Floats:
        """Return the weights of past tasks by their cosines, 0 to 1, (n,)."""
        return self._sharpen(deviations, self.nearest, self.same)

    def nearness_of_words(self, cosines: Floats) -> Floats:
        """Return the weights of past tasks by the cosines of their words, 0 to 1, (n,)."""
        return self._sharpen(cosines, self.words_nearest, self.words_same)

    def count_repeated(self, nearness: Floats, cosines: Floats) -> Floats:
        """Return the weights of past tasks with those of the same task raised, (n,)."""
        return np.where(cosines >= _SAME_COSINE, self.repeated, nearness)

    def _sharpen(self, values: Floats, low: float, high: float) -> Floats:
        share = np.clip((values - low) / (high - low), 0.0, 1.0)
        return np.asarray(share**self.sharpness, dtype=np.float64)

    def effect(self, counts: Counts) -> float:
        """Return what counts of near tasks add to a score, between -height and height.

        A rejection in the same task weighs against a skill as much as `helped` weighs for it. In a
        near task a rejection says little, since few skills are right for it; in the same task this
        very skill was tried.
        """
        helped, refused = counts.helped, counts.refused
        against = self.rejected * counts.rejected
        # The posterior mean less the prior, as one fraction: exactly 0 without counts.
        gain = (helped - refused) * (1.0 - self.prior) - against * self.prior
        return self.height * gain / (helped + refused + against + self.strength)

    def odds(self, counts: Counts) -> float:
        """Return what counts add to the log-odds that a skill is right for the task: the log-odds
        of the posterior mean less those of the prior. A rejection in the same task weighs as much
        as `helped`."""
        against = self.rejected * counts.rejected
        for_it, refused = (
            math.log1p(one / (self.strength * self.prior))
            for one in (counts.helped, counts.refused)
        )
        return for_it - refused - math.log1p(against / (self.strength * (1.0 - self.prior)))


@dataclass(frozen=True, slots=True)
class OwnerRules:
    """Rules that decide whose labels count.

    trusted: owners without limits. least_owners: number of other owners that must agree.
    daily_tasks: near tasks of such an owner and day that count. contributors: owners by the source
    to which they contributed; their labels of its skills do not count, unless they are trusted.
    sources: only labels of their skills count; None for all.
    """

    trusted: frozenset[str] = TRUSTED_OWNERS
    least_owners: int = 2
    daily_tasks: int = 3
    contributors: Mapping[str, frozenset[str]] = field(default_factory=dict)
    sources: frozenset[str] | None = None

    def is_about(self, label: SkillLabel) -> bool:
        """Return whether a label is of a skill of the sources that count."""
        return self.sources is None or get_source_id(label.skill_id) in self.sources

    def counts(self, label: SkillLabel) -> bool:
        """Return whether a label counts at all."""
        if not self.is_about(label):
            return False
        if label.owner in self.trusted:
            return True
        source = get_source_id(label.skill_id)
        return label.owner not in self.contributors.get(source, ())


class NearTask(NamedTuple):
    """A past task near the present one. nearness: 0 to 1, above 1 for the same task."""

    task_id: str
    nearness: float
    labels: tuple[SkillLabel, ...]


class Contribution(NamedTuple):
    """Report of one owner about a skill in a past task, weighted by nearness and day."""

    task_id: str
    owner: str
    nearness: float
    helped: float
    rejected: float

    @property
    def counts(self) -> Counts:
        """Amounts that it adds to the counts of the skill."""
        if self.nearness > 1.0:
            return Counts(helped=self.helped, refused=self.rejected)
        return Counts(self.helped, self.rejected)


@dataclass(frozen=True, slots=True)
class SkillEvidence:
    """Evidence about a skill from near past tasks.

    effect: to add to its score. odds: to add to the log-odds that it is right. nudge: further
    amount that would be added to the score if every owner counted alone; it may move the skill by
    one place. contributions: nearest first.
    """

    skill_id: str
    effect: float
    odds: float
    nudge: float
    contributions: tuple[Contribution, ...]

    @property
    def helped_tasks(self) -> int:
        """Number of near tasks with which it helped."""
        return len({one.task_id for one in self.contributions if one.helped})

    @property
    def rejected_tasks(self) -> int:
        """Number of near tasks for which it was rejected."""
        return len({one.task_id for one in self.contributions if one.rejected})


def weigh_evidence(
    near: Iterable[NearTask],
    find_newest_day: Callable[[], int],
    rules: OwnerRules,
    weights: MemoryWeights,
) -> dict[str, SkillEvidence]:
    """Return the evidence by skill.

    near: in a canonical order, nearest first; sums run in it. find_newest_day: returns the day that
    decay is relative to, so that the passing of time alone changes nothing; called only if a label
    counts, since it may read all past tasks.
    """
    newest_day = cache(find_newest_day)
    seen: Counter[tuple[str, int | None]] = Counter()
    by_skill: defaultdict[str, list[Contribution]] = defaultdict(list)
    counted = 0
    for task_id, nearness, all_labels in near:
        labels = _count_labels(all_labels, seen, rules, int(_OWNER_SHARE * weights.tasks))
        for skill_id, owner, day, helped, rejected in labels:
            weight = nearness * 0.5 ** (max(newest_day() - day, 0) / weights.half_life)
            one = Contribution(task_id, owner, nearness, weight * helped, weight * rejected)
            by_skill[skill_id].append(one)
        counted += bool(labels)
        if counted == weights.tasks:
            break
    return {
        skill_id: _conclude(skill_id, found, rules, weights)
        for skill_id, found in sorted(by_skill.items())
    }


def _count_labels(
    labels: Sequence[SkillLabel],
    seen: Counter[tuple[str, int | None]],
    rules: OwnerRules,
    max_tasks: int,
) -> Sequence[SkillLabel]:
    """Return the labels of a task that count.

    seen: number of tasks that counted so far, by (owner, day), and in total by (owner, None).
    max_tasks: maximum tasks of one owner.
    """
    trusted = rules.trusted
    if rules.sources is None and all(label.owner in trusted for label in labels):
        return labels
    found = [label for label in labels if rules.counts(label)]
    days = {(label.owner, label.day) for label in found if label.owner not in trusted}
    spent = {
        (owner, day)
        for owner, day in days
        if seen[owner, day] >= rules.daily_tasks or seen[owner, None] >= max_tasks
    }
    for owner, day in days - spent:
        seen[owner, day] += 1
        seen[owner, None] += 1
    return [label for label in found if (label.owner, label.day) not in spent]


def _conclude(
    skill_id: str, found: Sequence[Contribution], rules: OwnerRules, weights: MemoryWeights
) -> SkillEvidence:
    """Return the effect of what enough owners say, and the rest as a nudge."""
    trusted, others = Counts(), defaultdict[str, Counts](Counts)
    for one in found:
        if one.owner in rules.trusted:
            trusted += one.counts
        else:
            others[one.owner] += one.counts
    if not others:
        effect, odds = weights.effect(trusted), weights.odds(trusted)
        return SkillEvidence(skill_id, effect, odds, 0.0, tuple(found))
    trimmed = [_trim(values, rules.least_owners) for values in zip(*others.values(), strict=True)]
    alone = trusted + Counts(*(whole for whole, _ in trimmed))
    agreed = trusted + Counts(*(kept for _, kept in trimmed))
    effect = weights.effect(agreed)
    nudge = weights.effect(alone) - effect
    return SkillEvidence(skill_id, effect, weights.odds(agreed), nudge, tuple(found))


def _trim(values: Sequence[float], least_owners: int) -> tuple[float, float]:
    """Return the sum of what owners say, and the sum without the largest of `least_owners` - 1 of
    them: what remains if any so many are wrong (a trimmed sum, Huber, *Robust Statistics*, 1.3)."""
    ordered = sorted(values)
    kept = ordered[: max(len(ordered) - (least_owners - 1), 0)]
    return sum(ordered), sum(kept)
