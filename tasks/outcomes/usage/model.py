"""Usage of a period: counts by asker, reporter and skill."""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from skills.bundle.rejection import RejectionReason
from skills.outcomes.model import AnsweredQuery, Outcome, OutcomeKind, Reporter

REJECTED = {reason.value: f"rejected_{reason.value}" for reason in RejectionReason}
"""Name of the counter of rejections, by reason."""

SKILL_COUNTERS = (
    "chosen", "sent", "tokens", "used", "helped", "failed", "superseded", *REJECTED.values(),
)  # fmt: skip
"""Counters of a skill. chosen: queries whose answer names it; sent: queries that it was sent to;
tokens: tokens of it that were sent; the other counters: reported outcomes."""

QUERY_COUNTERS = ("queries", "hits", "no_hits", "unanswered", "missing")
"""Counters of queries. unanswered: queries for which the library had no useful skill: no hit, or a
skill that failed, was rejected or was reported as missing; and no skill was used, helped, or stood
in for another. missing: outcomes `missing`."""

OTHERS = "*"
"""Name for several owners whose skills are counted together; no owner has this name."""

MAX_CELLS = 100_000
"""Maximum cells (asker, reporter and skill) that a period keeps apart, as long as it has more than
one asker."""

MAX_UNANSWERED = 2_000
"""Maximum ids of unanswered queries that a period keeps: those with the smallest hashes, which are
a uniform sample that does not depend on the order of arrival."""

_FOLD_INTERVAL = 5_000
"""Number of queries after which the counts of a day are folded again, which bounds its memory."""

GroupKey = tuple[str, str]
"""Asker and reporter. Queries, and chosen and sent skills, are counted where both are the asker."""

_POSITIONS = {name: position for position, name in enumerate(SKILL_COUNTERS)}
_CHOSEN, _SENT, _TOKENS = (_POSITIONS[name] for name in ("chosen", "sent", "tokens"))
_REJECTED_POSITIONS = {reason: _POSITIONS[name] for reason, name in REJECTED.items()}
_WORKED = (OutcomeKind.HELPED, OutcomeKind.USED, OutcomeKind.SUPERSEDED)


Row: TypeAlias = "array[int]"
"""The counters of a skill. The garbage collector does not follow arrays, unlike lists: with
100,000 of them it would take a third of the time of counting a day."""

_ZEROS = bytes(array("q").itemsize * len(SKILL_COUNTERS))


class _Label(NamedTuple):
    """Meaning of a kind of outcome. position: of its counter, None if its reason decides that."""

    kind: OutcomeKind
    position: int | None
    worked: bool


_LABELS = {
    f"{kind}/{reporter}": _Label(kind, _POSITIONS.get(kind.value), kind in _WORKED)
    for kind in OutcomeKind
    for reporter in Reporter
}
"""Labels by `kind/reporter`. A plain text is looked up several times as fast as a member of an
enumeration, and a day may have a million outcomes."""


@dataclass(slots=True)
class GroupUsage:
    """Usage of one asker by one reporter.

    totals: QUERY_COUNTERS, and outcomes by `kind/reporter`. skills: SKILL_COUNTERS by skill_id.
    lost: how often a skill was left out for another skill that does the same, by (skill, other).
    """

    totals: Counter[str] = field(default_factory=Counter)
    skills: dict[str, Row] = field(default_factory=dict)
    lost: Counter[tuple[str, str]] = field(default_factory=Counter)

    def get_row(self, skill_id: str) -> Row:
        """Return the counters of a skill; the caller may add to them."""
        row = self.skills.get(skill_id)
        if row is None:
            row = self.skills[skill_id] = array("q", _ZEROS)
        return row

    def add_skills(self, other: GroupUsage) -> None:
        """Add the skills of another group."""
        for skill_id, counts in other.skills.items():
            row = self.get_row(skill_id)
            for position, count in enumerate(counts):
                row[position] += count
        self.lost.update(other.lost)


@dataclass(slots=True)
class Usage:
    """Queries of the days from `first` to `last`, and their outcomes, as counts.

    Outcomes count on the day on which their query was answered, however late they are reported.
    unanswered: a sample of the unanswered queries, ids by asker.
    """

    first: int
    last: int
    groups: dict[GroupKey, GroupUsage] = field(default_factory=dict)
    unanswered: dict[str, tuple[str, ...]] = field(default_factory=dict)


class UsageCollector:
    """Counter of the answered queries of a day.

    The result depends only on the set of queries, as long as they are added in order of a key.
    """

    def __init__(self, day: int, max_cells: int = MAX_CELLS) -> None:
        self._usage = Usage(day, day)
        self._max_cells = max_cells
        self._added = 0
        self._folded: set[GroupKey] = set()
        self._unanswered = _Sample(MAX_UNANSWERED)

    def add(self, answer: AnsweredQuery, outcomes: Sequence[Outcome]) -> None:
        """Count a query with all its outcomes; if the query was only looked at, count only the
        outcomes."""
        worked = self._add_outcomes(answer.owner, outcomes)
        if answer.is_use:
            self._add_answer(answer)
            if not worked and (outcomes or not answer.hit):
                self._get_group((answer.owner, answer.owner)).totals["unanswered"] += 1
                self._unanswered.add(answer.owner, answer.query_id)
        self._added += 1
        if self._added % _FOLD_INTERVAL == 0:
            self._fold()

    def _add_answer(self, answer: AnsweredQuery) -> None:
        """Count a query, and its chosen and sent skills."""
        key = (answer.owner, answer.owner)
        totals, skills = self._get_group(key).totals, self._get_skills(key)
        totals["queries"] += 1
        totals["hits" if answer.hit else "no_hits"] += 1
        for one in answer.skills:
            row = skills.get_row(one.skill_id)
            row[_CHOSEN] += 1
            if one.sent:
                row[_SENT] += 1
                row[_TOKENS] += one.tokens
        for lost in answer.lost:
            skills.lost[lost.skill_id, lost.to] += 1

    def _add_outcomes(self, asker: str, outcomes: Sequence[Outcome]) -> bool:
        """Count the outcomes of a query; returns whether one of them says that a skill worked."""
        worked = False
        reporter, group, skills = None, GroupUsage(), GroupUsage()
        for outcome in outcomes:
            if outcome.owner != reporter:
                reporter = outcome.owner
                group = self._get_group((asker, reporter))
                skills = self._get_skills((asker, reporter))
            name = f"{outcome.kind}/{outcome.by}"
            label = _LABELS[name]
            group.totals[name] += 1
            if label.kind is OutcomeKind.MISSING:
                group.totals["missing"] += 1
                continue
            position = label.position
            if position is None:
                position = _REJECTED_POSITIONS[outcome.reason]
            skills.get_row(outcome.skill_id)[position] += 1
            worked = worked or label.worked
        return worked

    def _get_group(self, key: GroupKey) -> GroupUsage:
        group = self._usage.groups.get(key)
        if group is None:
            group = self._usage.groups[key] = GroupUsage()
        return group

    def _get_skills(self, key: GroupKey) -> GroupUsage:
        """Return the group under which the skills of this group are counted."""
        return self._get_group((OTHERS, OTHERS) if key in self._folded else key)

    def _fold(self) -> None:
        self._folded |= fold(self._usage, self._max_cells)

    def finish(self) -> Usage:
        """Return the usage of the day."""
        self._fold()
        self._usage.unanswered = self._unanswered.get()
        return self._usage


class _Sample:
    """Sample of the `size` query ids with the smallest hashes."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: list[tuple[int, str, str]] = []

    def add(self, owner: str, query_id: str) -> None:
        digest = blake2b(query_id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        entry = (-int.from_bytes(digest, "big"), query_id, owner)
        if len(self._kept) < self._size:
            heapq.heappush(self._kept, entry)
        else:
            heapq.heappushpop(self._kept, entry)

    def get(self) -> dict[str, tuple[str, ...]]:
        """Return the ids by owner, both sorted."""
        found: dict[str, list[str]] = {}
        for _, query_id, owner in self._kept:
            found.setdefault(owner, []).append(query_id)
        return {owner: tuple(sorted(found[owner])) for owner in sorted(found)}


def fold(usage: Usage, max_cells: int = MAX_CELLS) -> set[GroupKey]:
    """Merge the skills of the smallest groups until a usage has at most `max_cells`; returns these
    groups. Their totals stay separate, and so do the skills."""
    groups = usage.groups
    cells = sum(len(group.skills) for group in groups.values())
    folded: set[GroupKey] = set()
    single = [key for key, group in groups.items() if group.skills and key != (OTHERS, OTHERS)]
    for key in sorted(single, key=lambda one: (len(groups[one].skills), one)):
        if cells <= max_cells or len(single) == 1:
            break
        others = groups.setdefault((OTHERS, OTHERS), GroupUsage())
        before = len(others.skills)
        others.add_skills(groups[key])
        cells += len(others.skills) - before - len(groups[key].skills)
        groups[key] = GroupUsage(groups[key].totals)
        folded.add(key)
    return folded


def merge_usage(parts: Sequence[Usage]) -> Usage:
    """Return the sum of the usage of several periods, without the ids of queries."""
    merged = Usage(min(part.first for part in parts), max(part.last for part in parts))
    for part in parts:
        for key, group in part.groups.items():
            target = merged.groups.setdefault(key, GroupUsage())
            target.totals.update(group.totals)
            target.add_skills(group)
    fold(merged)
    return merged


def without_owner(usage: Usage, owner: str) -> Usage:
    """Return a usage without the queries and outcomes of an owner, and without outcomes of its
    queries.

    Counts that include other owners stay.
    """
    return Usage(
        usage.first,
        usage.last,
        {key: group for key, group in usage.groups.items() if owner not in key},
        {asker: ids for asker, ids in usage.unanswered.items() if asker != owner},
    )


def count_by_name(row: Sequence[int]) -> dict[str, int]:
    """Return the counters of a skill by name, with `rejected`, the sum over all reasons."""
    named = dict(zip(SKILL_COUNTERS, row, strict=True))
    return {**named, "rejected": sum(named[name] for name in REJECTED.values())}
