"""Events about sources and skills: acceptance, state and outcome."""

from __future__ import annotations

import time
from dataclasses import asdict
from itertools import chain, islice
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict
from starlette.concurrency import run_in_threadpool

from config.errors import UsageError
from skills.batches import batches
from skills.events import (
    Event,
    SourceChanged,
    get_changed_source,
    parse_event,
    parse_request,
    replace_origin,
    replace_root,
)
from tasks.journal.protocol import Job, job_id, trace_of
from workers.audit.requests import note_object
from workers.backend.store_backend import StoreBackend
from workers.http.authentication import (
    LOCAL_USER,
    Caller,
    CurrentCaller,
    check_source,
    require_scope,
)
from workers.http.jobs import Accepted, get_visible_job
from workers.http.source_roots import resolve_root
from workers.http.tokens import TokenScope

_RECENT_SECONDS = 3_600.0
MAX_LISTED = 100
"""Maximum number of recent events, the newest."""

_MAX_SEARCHED = 2_000
"""Maximum events of each state that are read, the newest, for those that the caller may see."""


class TaskRunData(BaseModel):
    """A run of a task for an event. started, ended: seconds since the epoch. outcome: `done`,
    `stale` (a newer change had won), `passing` (a transient error, or it went on in another task)
    or `failed`. items: events or skills that it worked on, those of other events included.
    attempts: how often it was tried. error: class of the last error, "" without one. reason: its
    message, for admins, since it may name skills of others."""

    model_config = ConfigDict(frozen=True)

    task: str
    started: float
    ended: float
    outcome: str
    items: int
    attempts: int
    error: str
    reason: str


class EventState(BaseModel):
    """State of an event. outcome: result of its processing, `{"usage": true}` if it failed because
    the event itself was wrong; reason: why it failed. accepted:
    seconds since the epoch. trace_id: of the log lines of all its tasks. tasks: that ended for it
    within the last day, the first 200."""

    model_config = ConfigDict(frozen=True)

    id: str
    state: str
    outcome: dict[str, Any] | None
    reason: str
    accepted: float
    trace_id: str
    tasks: list[TaskRunData]


class ListedEvent(BaseModel):
    """An event in a list. subject: the skill or source that it is about. owner: name of the token
    that sent it, "" for this machine. accepted: seconds since the epoch. trace_id: of the log lines
    of all its tasks."""

    model_config = ConfigDict(frozen=True)

    id: str
    type: str
    subject: str
    owner: str
    state: str
    reason: str
    accepted: float
    trace_id: str


class EventList(BaseModel):
    """Events that are open or ended within the last hour, newest first."""

    model_config = ConfigDict(frozen=True)

    events: list[ListedEvent]


def event_routes(backend: StoreBackend) -> APIRouter:
    """Return the routes of events."""
    router = APIRouter(tags=["events"])

    @router.get("/v1/events")
    def list_events(caller: CurrentCaller) -> EventList:
        """List events that are open or ended within the last hour: your own, as an admin all."""
        return EventList(events=list_recent_events(backend, caller))

    @router.post(
        "/v1/events",
        status_code=202,
        dependencies=[require_scope(TokenScope.WRITE)],
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {
                    kind: {"schema": {"$ref": "#/components/schemas/CloudEvent"}}
                    for kind in ("application/cloudevents+json", "application/json")
                },
            }
        },
    )
    async def accept_event(request: Request, response: Response, caller: CurrentCaller) -> Accepted:
        """Accept an event about a source or a skill, or a query, as CloudEvents JSON."""
        text = await request.body()
        event = await run_in_threadpool(_record_event, backend, caller, text, request)
        kind = "queries" if event.type.startswith("skillbus.query.") else "events"
        # The user of this machine may choose the ids of jobs.
        response.headers["Location"] = f"/v1/{kind}/{quote(job_id(event), safe='')}"
        return Accepted(id=job_id(event))

    @router.get("/v1/events/{event_id:path}")
    def get_event_state(event_id: str, caller: CurrentCaller) -> EventState:
        """Show the state of an event, with its outcome and its tasks."""
        job = get_visible_job(backend, caller, event_id, "event", "outcome")
        trace_id = trace_of(job.event)
        return EventState(
            id=job.id,
            state=job.state,
            outcome=job.outcome,
            reason=job.reason,
            accepted=job.accepted,
            trace_id=trace_id,
            tasks=list_task_runs(backend, caller, trace_id),
        )

    return router


def list_task_runs(backend: StoreBackend, caller: Caller, trace_id: str) -> list[TaskRunData]:
    """Return the task runs of a trace that this caller may see."""
    hidden = {} if caller.is_admin else {"reason": ""}
    runs = backend.journal.list_task_runs(trace_id)
    return [TaskRunData(**(asdict(one) | hidden)) for one in runs]


def list_recent_events(backend: StoreBackend, caller: Caller) -> list[ListedEvent]:
    """Return open and recently ended events that this caller may see, newest first; if there are
    many, the newest."""
    journal, since = backend.journal, time.time() - _RECENT_SECONDS
    lists = [
        journal.list_ended_jobs("event", since).job_ids,
        journal.list_ended_jobs("event", since, "failed").job_ids,
        journal.list_open_jobs("event", backend.settings.workers.open_events),
    ]
    seen: dict[str, Job] = {}
    for ids in lists:
        newest = batches(reversed(ids[-_MAX_SEARCHED:]), MAX_LISTED)
        found = chain.from_iterable(journal.get_jobs(batch).values() for batch in newest)
        visible = (job for job in found if caller.can_see(job.event.owner))
        seen |= {job.id: job for job in islice(visible, MAX_LISTED)}
    newest_first = sorted(seen.values(), key=lambda job: -job.accepted)
    return [describe_event(job) for job in newest_first[:MAX_LISTED]]


def describe_event(job: Job) -> ListedEvent:
    """Return an event in the form of a list entry; one that this version cannot parse has no
    subject, and the reason if it has not failed for another."""
    subject, problem = "", ""
    try:
        data = job.event.parse_data()
        subject = getattr(data, "skill_id", "") or get_changed_source(data)
    except UsageError as error:
        problem = str(error)
    return ListedEvent(
        id=job.id,
        type=job.event.type,
        subject=subject,
        owner=job.event.owner,
        state=job.state,
        reason=job.reason or problem,
        accepted=job.accepted,
        trace_id=trace_of(job.event),
    )


def _record_event(backend: StoreBackend, caller: Caller, text: bytes, request: Request) -> Event:
    """Record an event; raises UsageError for an event that this caller may not send."""
    event = parse_event(text) if caller is LOCAL_USER else parse_request(text)
    content = event.parse_data()
    if event.replyto:
        raise UsageError("replyto: replies are sent to queues only, not over HTTP; leave it out")
    source_id = get_changed_source(content)
    note_object(request, f"{event.type} {source_id}".strip())
    if source_id:
        check_source(caller, source_id)
        backend.check_visible(caller.reader, source_id)
    if isinstance(content, SourceChanged) and content.root:
        root = resolve_root(backend, caller, content.source_id, content.root)
        event = replace_root(event, root)
    event = replace_origin(event, caller.name, caller.reader)
    backend.accept_if_new(event)
    return event
