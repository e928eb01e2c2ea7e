"""Which reports count, and how many of them: caps and owners, so that one owner decides nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from skills.outcomes.task_report import TaskReport
from skills.outcomes.weights import TRUSTED_OWNERS


class Tally(NamedTuple):
    """What reports add up to. weight: each task counts once, with its weightiest report."""

    weight: float = 0.0
    tasks: int = 0
    owners: int = 0


NOTHING = Tally()


@dataclass(frozen=True, slots=True)
class CountingRules:
    """Whose reports count.

    trusted: owners whose reports count without limits. least_owners: that must agree, if none is
    trusted. daily_tasks: of one owner and day that count for one statement. contributors: owners by
    the source that they contributed to; they do not count for its skills.
    """

    trusted: frozenset[str] = TRUSTED_OWNERS
    least_owners: int = 2
    daily_tasks: int = 3
    contributors: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def count(self, skill_ids: Iterable[str], reports: Iterable[tuple[TaskReport, float]]) -> Tally:
        """The tally of a statement about these skills, from reports with their weights.

        A function of the set of reports.
        """
        given = list(reports)
        if not given:
            return NOTHING
        barred = {
            owner
            for skill_id in skill_ids
            for owner in self.contributors.get(skill_id.partition(":")[0], ())
        } - self.trusted
        by_day: defaultdict[tuple[str, int], list[tuple[float, str]]] = defaultdict(list)
        for report, weight in given:
            if report.owner not in barred:
                by_day[report.owner, report.day].append((-weight, report.query_id))
        owners = {owner for owner, _ in by_day}
        if len(owners) < self.least_owners and not owners & self.trusted:
            return NOTHING
        tasks: dict[str, float] = {}
        for (owner, _), found in by_day.items():
            counted = sorted(found) if owner not in self.trusted else found
            limit = len(found) if owner in self.trusted else self.daily_tasks
            for minus, query_id in counted[:limit]:
                tasks[query_id] = max(tasks.get(query_id, 0.0), -minus)
        return Tally(sum(tasks.values()), len(tasks), len(owners))
