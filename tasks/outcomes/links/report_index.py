"""The reports about past tasks by skill, kept up with the store of outcomes."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence

from skills.outcomes.task_report import TaskReport, build_reports
from tasks.outcomes.protocol import OutcomeStore

_BATCH_QUERIES = 1_000


class ReportIndex:
    """Reports of the newest tasks: a function of the set of stored outcomes.

    At most `max_tasks`, the newest by the day of the last report, then by query_id. About 1 kB a
    task.
    """

    def __init__(self, store: OutcomeStore, max_tasks: int) -> None:
        self._store = store
        self._max_tasks = max_tasks
        self.clear()

    def clear(self) -> None:
        """Forget everything; the next `refresh` reads all outcomes again."""
        self.epoch = 0
        self._reports: dict[str, tuple[TaskReport, ...]] = {}
        self._tasks: defaultdict[str, set[str]] = defaultdict(set)
        self._oldest: list[tuple[int, str]] = []
        self._has_dropped = False

    def refresh(self, *, pages: int | None = None) -> tuple[set[str], bool]:
        """Read what changed; returns the skills whose reports changed, and whether more is left.

        pages: of changes that are read at most; None reads all.
        """
        touched: set[str] = set()
        read = 0
        while True:
            changes = self._store.get_changes(self.epoch)
            before = self.epoch
            self.epoch = changes.epoch
            if changes.query_ids and self._read(changes.query_ids, touched):
                # A task that was dropped to make room may be among the newest again.
                touched |= self._tasks.keys()
                self.clear()
                return touched | self.refresh()[0], False
            read += 1
            if not changes.more or self.epoch == before:
                return touched, False
            if pages is not None and read >= pages:
                return touched, True

    def _read(self, query_ids: Sequence[str], touched: set[str]) -> bool:
        """Replace the reports of these queries; whether room came free that dropped tasks had."""
        for start in range(0, len(query_ids), _BATCH_QUERIES):
            batch = query_ids[start : start + _BATCH_QUERIES]
            found = self._store.get_outcomes(batch)
            for query_id in batch:
                known = query_id in self._reports
                touched |= self._replace(query_id, build_reports(found.get(query_id, ())))
                if self._has_dropped and known and not found.get(query_id):
                    return True
        return False

    def _replace(self, query_id: str, reports: Iterable[TaskReport]) -> set[str]:
        touched = self._drop(query_id)
        kept = tuple(report for report in reports if report.skill_ids)
        if not kept:
            return touched
        self._reports[query_id] = kept
        for skill_id in {one for report in kept for one in report.skill_ids}:
            self._tasks[skill_id].add(query_id)
            touched.add(skill_id)
        heapq.heappush(self._oldest, (_get_day(kept), query_id))
        while len(self._reports) > self._max_tasks:
            day, oldest = heapq.heappop(self._oldest)
            if oldest in self._reports and _get_day(self._reports[oldest]) == day:
                touched |= self._drop(oldest)
                self._has_dropped = True
        return touched

    def _drop(self, query_id: str) -> set[str]:
        dropped = self._reports.pop(query_id, ())
        skill_ids = {one for report in dropped for one in report.skill_ids}
        for skill_id in skill_ids:
            self._tasks[skill_id].discard(query_id)
            if not self._tasks[skill_id]:
                del self._tasks[skill_id]
        return skill_ids

    @property
    def skill_ids(self) -> set[str]:
        """All skills that there are reports about."""
        return set(self._tasks)

    def __contains__(self, skill_id: str) -> bool:
        return skill_id in self._tasks

    def get_reports(self, skill_id: str) -> list[TaskReport]:
        """The reports that are about a skill."""
        return [
            report
            for query_id in sorted(self._tasks.get(skill_id, ()))
            for report in self._reports[query_id]
            if skill_id in report.skill_ids
        ]

    def get_shared(self, one: str, other: str) -> list[TaskReport]:
        """The reports that are about both skills."""
        shared = self._tasks.get(one, set()) & self._tasks.get(other, set())
        return [
            report
            for query_id in sorted(shared)
            for report in self._reports[query_id]
            if one in report.skill_ids and other in report.skill_ids
        ]


def _get_day(reports: Sequence[TaskReport]) -> int:
    return max(report.day for report in reports)
