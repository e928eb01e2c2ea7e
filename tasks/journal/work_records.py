"""Records of work: the tasks of an event, and counts of work in each minute of the last day.

Both are bounded and expire. They are only for display: nothing depends on them. Queries are not
recorded here; their answers have the durations of their stages.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from tasks.metrics_recorder import TaskOutcome

KEPT_SECONDS = 86_400
"""Seconds for which runs and minutes are kept."""

MAX_RUNS = 200
"""Maximum runs that are kept of one trace, the first ones: a large sync has hundreds of ingest
tasks."""

MAX_REASON_CHARACTERS = 1_000

CountKind = Literal["task", "event", "searchable"]

_BUCKETS_PER_DOUBLING = 4
_FIRST_BUCKET, _LAST_BUCKET = -20, 80


@dataclass(frozen=True, slots=True)
class TaskRun:
    """One run of a task for an event, with its retries.

    task: its name. started, ended: seconds since the epoch, of the worker's clock. items: number of
    events or skills that it worked on. attempts: number of tries. error, reason: class and message
    of the last error, "" without one; the message may name skills.
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
    """Counts of the work that ended in a minute.

    at: start of the minute, seconds since the epoch. tasks: number of ended tasks by name. failed:
    number of failed tasks. events: number of events that were carried out. searchable: number of
    a `duration_bucket` -> number of skills that were published this long after their event.
    """

    at: int
    tasks: Mapping[str, int]
    failed: int
    events: int
    searchable: Mapping[int, int]


class WorkRecords(Protocol):
    """Store of records of work."""

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


def duration_bucket(seconds: float) -> int:
    """Return the number of the histogram bucket of a duration; each bucket is 19 % wide, four
    buckets double the duration."""
    if seconds <= 0:
        return _FIRST_BUCKET
    found = round(math.log2(seconds) * _BUCKETS_PER_DOUBLING)
    return min(max(found, _FIRST_BUCKET), _LAST_BUCKET)


def find_percentile(buckets: Mapping[int, int], share: float) -> float | None:
    """Return the duration in seconds below which a share of the counted durations lie, to within
    9 %; None without durations. buckets: number of durations by `duration_bucket`."""
    wanted = share * sum(buckets.values())
    passed = 0
    for number in sorted(buckets):
        passed += buckets[number]
        if passed >= wanted:
            return float(2.0 ** (number / _BUCKETS_PER_DOUBLING))
    return None


def count_run(run: TaskRun) -> dict[tuple[CountKind, str], int]:
    """Return the counts that a run adds to its minute."""
    return {("task", f"{run.task} {run.outcome}"): 1}


def build_minute(at: int, counts: Mapping[tuple[str, str], int]) -> WorkMinute:
    """Return the counts of a minute as a `WorkMinute`."""
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
