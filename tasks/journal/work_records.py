"""Records of work: the tasks of an event, and how much was done in each minute of the last day.

Both are bounded and expire: they show what goes on, and nothing depends on them. Queries are not
among them; their answers have the durations of their stages.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from tasks.metrics_recorder import TaskOutcome

KEPT_SECONDS = 86_400
"""How long runs and minutes are kept."""

MAX_RUNS = 200
"""Runs kept of one trace, the first ones: a large sync has hundreds of ingest tasks."""

MAX_REASON_CHARACTERS = 1_000

CountKind = Literal["task", "event", "searchable"]

_RANGES_PER_DOUBLING = 4
_LEAST_RANGE, _LARGEST_RANGE = -20, 80


@dataclass(frozen=True, slots=True)
class TaskRun:
    """One run of a task for an event, with its retries.

    task: its name. started, ended: seconds since the epoch, of the worker's clock. items: how many
    events or skills it worked on. attempts: how often it was tried. error, reason: class and
    message of the last error, "" without one; the message may name skills.
    """

    task: str
    started: float
    ended: float
    outcome: TaskOutcome
    items: int
    attempts: int = 1
    error: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class WorkMinute:
    """What ended in a minute.

    at: its begin, seconds since the epoch. tasks: by name, those that ended. failed: how many of
    them failed. events: that were carried out. searchable: range of `duration_range` -> how many
    skills were published so long after their event.
    """

    at: int
    tasks: Mapping[str, int]
    failed: int
    events: int
    searchable: Mapping[int, int]


class WorkRecords(Protocol):
    """Where records of work are kept."""

    def add_task_run(self, run: TaskRun, trace_ids: Sequence[str]) -> None:
        """Record a run under the traces of the events that led to it, and count it."""
        ...

    def list_task_runs(self, trace_id: str) -> list[TaskRun]:
        """Return the runs of a trace in the order in which they ended."""
        ...

    def count_work(self, counts: Mapping[tuple[CountKind, str], int]) -> None:
        """Add to the counts of this minute."""
        ...

    def list_work_minutes(self, since: float) -> list[WorkMinute]:
        """Return the minutes since a time in which something ended, oldest first."""
        ...


def duration_range(seconds: float) -> int:
    """Return the range that a duration belongs to; each is 19 % wide, four of them are a
    doubling."""
    if seconds <= 0:
        return _LEAST_RANGE
    found = round(math.log2(seconds) * _RANGES_PER_DOUBLING)
    return min(max(found, _LEAST_RANGE), _LARGEST_RANGE)


def find_percentile(ranges: Mapping[int, int], share: float) -> float | None:
    """Return the duration below which a share of the counted ones lie, in seconds, to within 9 %;
    None if none was counted."""
    wanted = share * sum(ranges.values())
    passed = 0
    for one in sorted(ranges):
        passed += ranges[one]
        if passed >= wanted:
            return float(2.0 ** (one / _RANGES_PER_DOUBLING))
    return None


def count_run(run: TaskRun) -> dict[tuple[CountKind, str], int]:
    """What a run adds to the counts of its minute."""
    return {("task", f"{run.task} {run.outcome}"): 1}


def build_minute(at: int, counts: Mapping[tuple[str, str], int]) -> WorkMinute:
    """Return the counts of a minute by what they count."""
    tasks: Counter[str] = Counter()
    failed = events = 0
    searchable = {}
    for (kind, name), count in counts.items():
        if kind == "task":
            task, _, outcome = name.partition(" ")
            tasks[task] += count
            failed += count if outcome == "failed" else 0
        elif kind == "event":
            events += count
        elif kind == "searchable":
            searchable[int(name)] = count
    return WorkMinute(at, tasks, failed, events, searchable)
