"""Rules for counting reports: caps per owner and day, and a minimum of agreeing owners.

They keep a single owner from deciding alone, unless it is trusted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from skills.outcomes.task_report import TaskReport
from skills.outcomes.weights import TRUSTED_OWNERS
from skills.record import get_source_id

_Weighed = tuple[float, str]
"""Negative weight of a report, and the id of its query: the greatest weight sorts first."""

_Days = defaultdict[tuple[str, int], list[_Weighed]]
"""Reports by owner and day."""


class Tally(NamedTuple):
    """The sum of reports about a statement.

    weight: each task counts once, with its greatest weight.
    """

    weight: float = 0.0
    tasks: int = 0
    owners: int = 0


NOTHING = Tally()


@dataclass(frozen=True, slots=True)
class CountingRules:
    """Owners whose reports count, and limits on the others.

    trusted: owners whose reports count without limits. least_owners: number of owners that must
    agree if none of them is trusted. daily_tasks: maximum tasks of one owner and day that count for
    one statement. contributors: source -> owners that contributed to it; their reports do not count
    for its skills.
    """

    trusted: frozenset[str] = TRUSTED_OWNERS
    least_owners: int = 2
    daily_tasks: int = 3
    contributors: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def count(self, skill_ids: Iterable[str], reports: Iterable[tuple[TaskReport, float]]) -> Tally:
        """Return the tally of a statement about these skills, from reports with their weights.

        A function of the set of reports; the set has at most one report of a task and owner.
        """
        by_day = self.group(skill_ids, reports)
        if not self.agree({owner for owner, _ in by_day}):
            return NOTHING
        tasks: dict[str, float] = {}
        for (owner, _), found in by_day.items():
            for minus, query_id in self.limit(owner, sorted(found)):
                tasks[query_id] = max(tasks.get(query_id, 0.0), -minus)
        return Tally(sum(tasks.values()), len(tasks), len({owner for owner, _ in by_day}))

    def group(self, skill_ids: Iterable[str], reports: Iterable[tuple[TaskReport, float]]) -> _Days:
        """Group reports by owner and day, without reports of contributors."""
        barred = {
            owner
            for skill_id in skill_ids
            for owner in self.contributors.get(get_source_id(skill_id), ())
        } - self.trusted
        by_day: _Days = defaultdict(list)
        for report, weight in reports:
            if report.owner not in barred:
                by_day[report.owner, report.day].append((-weight, report.query_id))
        return by_day

    def agree(self, owners: Set[str]) -> bool:
        """Return whether the owners suffice: enough of them, or one that is trusted."""
        return len(owners) >= self.least_owners or not owners.isdisjoint(self.trusted)

    def limit(self, owner: str, found: Iterable[_Weighed]) -> Iterable[_Weighed]:
        """Return the first reports of an owner and day, up to the daily limit; all if trusted."""
        return found if owner in self.trusted else islice(found, self.daily_tasks)


class CountedTasks:
    """The tasks that count for a statement about one skill; recounts them without some reports.

    reports: as in `CountingRules.count`.
    """

    def __init__(
        self, skill_id: str, reports: Iterable[tuple[TaskReport, float]], rules: CountingRules
    ) -> None:
        self._rules = rules
        self._days = rules.group([skill_id], reports)
        self._reports: Counter[str] = Counter()
        self._times: Counter[str] = Counter()
        self._places: set[tuple[str, str]] = set()
        for (owner, _), found in self._days.items():
            found.sort()
            self._reports[owner] += len(found)
            self._times.update(query_id for _, query_id in rules.limit(owner, found))
            self._places.update((owner, query_id) for _, query_id in found)

    def count_without(self, reports: Iterable[TaskReport]) -> int:
        """Return the number of tasks that `CountingRules.count` gives without these reports.

        The time depends only on the number of these reports.
        """
        rules = self._rules
        gone: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        for report in reports:
            if (report.owner, report.query_id) in self._places:
                gone[report.owner, report.day].add(report.query_id)
        lost: Counter[str] = Counter()
        changes: Counter[str] = Counter()
        for (owner, day), ids in gone.items():
            lost[owner] += len(ids)
            if owner in rules.trusted:
                changes.subtract(ids)
                continue
            found = self._days[owner, day]
            left = (one for one in found if one[1] not in ids)
            changes.subtract(query_id for _, query_id in rules.limit(owner, found))
            changes.update(query_id for _, query_id in rules.limit(owner, left))
        if not rules.agree({one for one, count in self._reports.items() if count > lost[one]}):
            return 0
        tasks = len(self._times)
        for query_id, change in changes.items():
            before = self._times[query_id]
            tasks += (before + change > 0) - (before > 0)
        return tasks
