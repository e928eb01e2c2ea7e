"""Work: queues, workers, rates, and the time from an event until its skills are searchable."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.exceptions import HTTPException

from tasks.journal.work_records import WorkMinute, find_percentile
from workers.backend.store_backend import StoreBackend
from workers.http.authentication import CurrentCaller
from workers.http.dependencies import CurrentBackend
from workers.http.models import RequestModel, ResponseModel
from workers.http.routes.operations.events import ListedEvent, describe_event

MAX_HOURS = 24

_POINTS = 72
"""Maximum number of points; each covers whole minutes."""

_LAST_SECONDS = 3_600


class WorkQuery(RequestModel):
    """Parameters of the report. hours: length of the range, which ends now."""

    hours: int = Field(6, ge=1, le=MAX_HOURS)


class QueueLength(ResponseModel):
    """A queue and the messages that wait in it. A message may stand for much work: one `plan`
    handles all open events."""

    queue: str
    waiting: int


class RunningTask(ResponseModel):
    """A task that runs. items: events or skills that it works on. seconds: since its start.
    trace_id: of the event or query that led to it; "" for callers that are not admins."""

    task: str
    items: int
    seconds: float
    trace_id: str


class WorkerData(ResponseModel):
    """A worker that answers: a process with `skillbus worker`, or the threads of `serve`."""

    worker: str
    queues: list[str]
    running: list[RunningTask]


class WorkPoint(ResponseModel):
    """The work in one part of the range. at: its begin, seconds since the epoch. events, tasks:
    number that ended per minute. skills: number that became searchable; p50, p95: seconds from
    their event until then, median and 95th percentile, to within 9 %; None without skills."""

    at: int
    events: float
    tasks: float
    failed_tasks: int
    skills: int
    p50: float | None
    p95: float | None


class TaskCount(ResponseModel):
    """Tasks of a name that ended."""

    task: str
    ended: int


class WorkReport(ResponseModel):
    """The work of the deployment. queues: None if the broker does not answer. oldest_event: the
    open event that has waited longest, for admins. point_seconds: length of a point. p50, p95: over
    all points. tasks: of the last hour, without queries and maintenance."""

    queues: list[QueueLength] | None
    workers: list[WorkerData]
    oldest_event: ListedEvent | None
    p50: float | None
    p95: float | None
    tasks: list[TaskCount]
    point_seconds: int
    points: list[WorkPoint]


router = APIRouter(tags=["events"])


@router.get("/v1/work")
def show_work(
    backend: CurrentBackend, caller: CurrentCaller, query: Annotated[WorkQuery, Query()]
) -> WorkReport:
    """Show queues, workers and rates, and the time from an event until its skills are
    searchable. For callers that see all sources."""
    if backend.find_visible_sources(caller.reader) is not None:
        raise HTTPException(403, "work is counted over all sources, which this token may not see")
    hours, now = query.hours, time.time()
    step = -(-hours * 3_600 // (_POINTS * 60)) * 60
    first = int(now // step + 1) * step - hours * 3_600 // step * step
    minutes = backend.journal.list_work_minutes(min(first, now - _LAST_SECONDS))
    last = [one for one in minutes if one.at >= now - _LAST_SECONDS]
    durations = _add_up(one for one in minutes if one.at >= first)
    queues = backend.list_queues()
    return WorkReport(
        queues=None if queues is None else [QueueLength(**one) for one in queues],
        workers=[_describe_worker(one, caller.is_admin) for one in backend.list_workers()],
        oldest_event=_find_oldest(backend) if caller.is_admin else None,
        p50=find_percentile(durations, 0.5),
        p95=find_percentile(durations, 0.95),
        tasks=_count_tasks(last),
        point_seconds=step,
        points=_build_points(minutes, first, step, now),
    )


def _find_oldest(backend: StoreBackend) -> ListedEvent | None:
    oldest = backend.journal.get_jobs(backend.journal.list_open_jobs("event", 1))
    return next(map(describe_event, oldest.values()), None)


def _describe_worker(worker: dict[str, Any], is_admin: bool) -> WorkerData:
    return WorkerData(
        worker=worker["worker"],
        queues=worker["queues"],
        running=[
            RunningTask(
                task=one["task"],
                items=len(one["ids"]),
                seconds=one["seconds"],
                trace_id=one["trace_id"] if is_admin else "",
            )
            for one in worker["running"]
        ],
    )


def _count_tasks(minutes: Iterable[WorkMinute]) -> list[TaskCount]:
    counts: Counter[str] = Counter()
    for one in minutes:
        counts.update(one.tasks)
    return [TaskCount(task=task, ended=ended) for task, ended in counts.most_common()]


def _add_up(minutes: Iterable[WorkMinute]) -> Counter[int]:
    """Return counts of skills by the range of their time from event to searchable."""
    durations: Counter[int] = Counter()
    for one in minutes:
        durations.update(one.searchable)
    return durations


def _build_points(
    minutes: Sequence[WorkMinute], first: int, step: int, now: float
) -> list[WorkPoint]:
    """Return the points from `first` on; rates of the last point are over its time so far."""
    parts: dict[int, list[WorkMinute]] = {}
    for one in minutes:
        parts.setdefault((one.at - first) // step, []).append(one)
    points = []
    for place, at in enumerate(range(first, int(now) + 1, step)):
        found = parts.get(place, [])
        passed = min(step, max(60.0, now - at)) / 60
        durations = _add_up(found)
        points.append(
            WorkPoint(
                at=at,
                events=round(sum(one.events for one in found) / passed, 2),
                tasks=round(sum(sum(one.tasks.values()) for one in found) / passed, 2),
                failed_tasks=sum(one.failed for one in found),
                skills=sum(durations.values()),
                p50=find_percentile(durations, 0.5),
                p95=find_percentile(durations, 0.95),
            )
        )
    return points
