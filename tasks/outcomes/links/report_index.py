"""Reports about past tasks by skill, which follow the store of outcomes."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from skills.batches import batches
from skills.outcomes.task_report import TaskReport, build_reports
from tasks.outcomes.change_reader import ChangedQueries, ChangeReader
from tasks.outcomes.protocol import OutcomeStore

_BATCH_QUERIES = 1_000
_SPARE_ENTRIES = 64


class Refreshed(NamedTuple):
    """Result of a read of changes.

    skill_ids: skills whose reports changed after the epoch `since`; `since` is 0 if reports of
    other skills may have changed too.
    """

    skill_ids: set[str]
    since: int


class ReportIndex:
    """Reports of the newest tasks: a function of the set of stored outcomes.

    At most `max_tasks`, the newest by the day of the last report, then by query_id. About 2 kB a
    task. clock: see `ChangeReader`.
    """

    def __init__(
        self, store: OutcomeStore, max_tasks: int, clock: Callable[[], float] | None = None
    ) -> None:
        self._store = store
        self._max_tasks = max_tasks
        self._changes = ChangeReader(store, 0.0, clock)
        self.clear()

    @property
    def epoch(self) -> int:
        """Epoch of the last change of the store that is in the index."""
        return self._changes.epoch

    def clear(self) -> None:
        """Remove everything; the next `refresh` reads all outcomes again."""
        self._changes.start_anew()
        self._empty()

    def _empty(self) -> None:
        self._reports: dict[str, tuple[TaskReport, ...]] = {}
        self._tasks: defaultdict[str, set[str]] = defaultdict(set)
        self._oldest: list[tuple[int, str]] = []
        self._has_dropped = False

    def refresh(self) -> Refreshed:
        """Read the changes. After an error, the index must be cleared by `clear`."""
        changes = self._changes.read()
        since, touched = changes.after, set[str]()
        if not self._apply(changes, touched):
            # A task that was dropped to make room may be among the newest again.
            self._changes.start_anew()
            changes = self._changes.read()
            self._apply(changes, touched)
        self._changes.finish(changes)
        return Refreshed(touched, since)

    def _apply(self, changes: ChangedQueries, touched: set[str]) -> bool:
        """Apply changes; return whether the index holds the newest tasks afterwards."""
        if not changes.after:
            touched.update(self._tasks)
            self._empty()
        for batch in batches(changes.query_ids, _BATCH_QUERIES):
            found = self._store.get_outcomes(batch)
            for query_id in batch:
                known = self._reports.get(query_id)
                reports = build_reports(found.get(query_id, ()))
                kept = tuple(report for report in reports if report.skill_ids)
                touched.update(self._replace(query_id, kept))
                is_older = known and (not kept or _get_day(kept) < _get_day(known))
                if is_older and self._has_dropped:
                    return False
        return True

    def _replace(self, query_id: str, kept: tuple[TaskReport, ...]) -> set[str]:
        touched = self._drop(query_id)
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
        if len(self._oldest) > 2 * len(self._reports) + _SPARE_ENTRIES:
            # Each change of a task leaves an entry.
            self._oldest = [(_get_day(kept), one) for one, kept in self._reports.items()]
            heapq.heapify(self._oldest)
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
        """Ids of all skills with reports."""
        return set(self._tasks)

    def __contains__(self, skill_id: str) -> bool:
        return skill_id in self._tasks

    def get_reports(self, *skill_ids: str) -> list[TaskReport]:
        """Return the reports that are about all of these skills."""
        shared = set.intersection(*(self._tasks.get(one, set()) for one in skill_ids))
        return [
            report
            for query_id in sorted(shared)
            for report in self._reports[query_id]
            if report.skill_ids.issuperset(skill_ids)
        ]


def _get_day(reports: Iterable[TaskReport]) -> int:
    return max(report.day for report in reports)
