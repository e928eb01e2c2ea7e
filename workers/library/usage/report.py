"""Sums of the usage of a range of days: in total, by day, skill, source and owner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from skills.outcomes.model import SECONDS_PER_DAY, Outcome
from skills.record import get_source_id
from tasks.outcomes.usage.model import (
    OTHERS,
    QUERY_COUNTERS,
    REJECTED,
    GroupUsage,
    Usage,
    count_by_name,
)
from tasks.outcomes.usage.window import UsageWindow

MAX_DAYS = 3_650

_COUNTERS = ("chosen", "sent", "tokens", "used", "helped", "failed", "rejected", "superseded")
Counts = Counter[str]


@dataclass(frozen=True, slots=True)
class UsageFilter:
    """Filter of usage; None counts all.

    source, skill: of skills. owner: token that asked the query, and that reported the outcome; ""
    is the user of this machine. visible: sources whose skills the reader may see.
    """

    source: str | None = None
    skill: str | None = None
    owner: str | None = None
    visible: frozenset[str] | None = None

    @property
    def selects_skills(self) -> bool:
        """Whether only some skills are counted; then queries are not, as a
        query has several skills."""
        return any(one is not None for one in (self.source, self.skill, self.visible))

    def select_groups(self, usage: Usage) -> Iterator[tuple[str, GroupUsage]]:
        """Yield the groups to count, each with its owner: the reporter of outcomes, or
        the asker of queries."""
        for (_, reporter), group in usage.groups.items():
            if self.owner in (None, reporter):
                yield reporter, group

    def sees(self, skill_id: str) -> bool:
        """Return whether the reader may see a skill."""
        return self.visible is None or get_source_id(skill_id) in self.visible

    def hide(self, outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
        """Return outcomes without skills that the reader may not see."""
        return tuple(
            one if self.sees(one.other) else replace(one, other="")
            for one in outcomes
            if not one.skill_id or self.sees(one.skill_id)
        )

    def has_skill(self, skill_id: str) -> bool:
        """Return whether a skill is counted."""
        if self.skill is not None and skill_id != self.skill:
            return False
        if not self.sees(skill_id):
            return False
        return self.source is None or get_source_id(skill_id) == self.source


def format_day(day: int) -> str:
    """Return a day since the epoch as a date."""
    return datetime.fromtimestamp(day * SECONDS_PER_DAY, UTC).strftime("%Y-%m-%d")


def summarise_usage(window: UsageWindow, selection: UsageFilter) -> dict[str, Any]:
    """Return the usage of a window as JSON data.

    Rows of skills and owners are ordered by what was sent, then by id. `queries` and the other
    counters of queries are missing if the filter is about skills. `behind`: days that are shown as
    of the last roll-up, since they are too large to be counted now.
    """
    total, days = Counter[str](), []
    skills: dict[str, Counts] = {}
    owners: dict[str, Counts] = {}
    for usage in window.days:
        day = Counter[str]()
        for owner, group in selection.select_groups(usage):
            counts = owners.setdefault(owner, Counter())
            if not selection.selects_skills:
                queries = {name: group.totals[name] for name in QUERY_COUNTERS}
                for target in (day, total, counts):
                    target.update(queries)
            for skill_id, row in group.skills.items():
                if selection.has_skill(skill_id):
                    named = count_by_name(row)
                    for target in (day, total, counts, skills.setdefault(skill_id, Counter())):
                        target.update(named)
        days.append(_period(usage) | _select_counts(day, selection))
    return {
        "first": format_day(window.first),
        "last": format_day(window.last),
        "behind": [format_day(day) for day in window.behind],
        "total": _select_counts(total, selection) | {"reasons": _reasons(total)},
        "days": days,
        "skills": [_skill_row(skill_id, counts) for skill_id, counts in _by_sent(skills)],
        "sources": [
            {"source": source, **_select(counts, _COUNTERS)}
            for source, counts in _by_sent(_sum_sources(skills.items()))
        ],
        "owners": [
            {"owner": owner, "several": owner == OTHERS, **_select_counts(counts, selection)}
            for owner, counts in _by_sent(owners)
            if any(counts.values())
        ],
    }


def _period(usage: Usage) -> dict[str, str]:
    """Return the day of a usage, and its last day if it covers several."""
    period = {"day": format_day(usage.first)}
    return period | ({"last": format_day(usage.last)} if usage.last > usage.first else {})


def _select(counts: Counts, names: Iterable[str]) -> dict[str, int]:
    return {name: counts[name] for name in names}


def _select_counts(counts: Counts, selection: UsageFilter) -> dict[str, int]:
    return _select(counts, _COUNTERS if selection.selects_skills else (*QUERY_COUNTERS, *_COUNTERS))


def _reasons(counts: Counts) -> dict[str, int]:
    """Return rejections by reason, without reasons that did not occur."""
    return {reason: counts[name] for reason, name in REJECTED.items() if counts[name]}


def _skill_row(skill_id: str, counts: Counts) -> dict[str, Any]:
    return {"skill_id": skill_id, **_select(counts, _COUNTERS), "reasons": _reasons(counts)}


def _by_sent(counted: dict[str, Counts]) -> list[tuple[str, Counts]]:
    def rank(one: tuple[str, Counts]) -> tuple[int, int, str]:
        name, counts = one
        return (-counts["sent"], -counts["chosen"], name)

    return sorted(counted.items(), key=rank)


def _sum_sources(skills: Iterable[tuple[str, Counts]]) -> dict[str, Counts]:
    sources: dict[str, Counts] = {}
    for skill_id, counts in skills:
        sources.setdefault(get_source_id(skill_id), Counter()).update(counts)
    return sources
