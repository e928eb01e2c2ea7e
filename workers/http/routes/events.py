"""Events about sources and skills: accepted, and their state and outcome."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict
from starlette.concurrency import run_in_threadpool

from config.errors import UsageError
from skills.events import (
    Event,
    SourceChanged,
    get_source_id,
    parse_event,
    parse_request,
    replace_origin,
)
from tasks.journal.protocol import job_id
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


class EventState(BaseModel):
    """State of an event. outcome: result of its processing; reason: why it failed."""

    model_config = ConfigDict(frozen=True)

    id: str
    state: str
    outcome: dict[str, Any] | None
    reason: str


def event_routes(backend: StoreBackend) -> APIRouter:
    """Return the routes of events."""
    router = APIRouter(tags=["events"])

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
        response.headers["Location"] = f"/v1/{kind}/{job_id(event)}"
        return Accepted(id=job_id(event))

    @router.get("/v1/events/{event_id}")
    def get_event_state(event_id: str, caller: CurrentCaller) -> EventState:
        """Show the state of an event, with its outcome."""
        job = get_visible_job(backend, caller, event_id, "event", "outcome")
        return EventState(id=job.id, state=job.state, outcome=job.outcome, reason=job.reason)

    return router


def _record_event(backend: StoreBackend, caller: Caller, text: bytes, request: Request) -> Event:
    """Record an event; raises UsageError for an event that this caller may not send."""
    event = parse_event(text) if caller is LOCAL_USER else parse_request(text)
    content = event.parse_data()
    if event.replyto:
        raise UsageError("replyto: replies are sent to queues only, not over HTTP; leave it out")
    source_id = get_source_id(content)
    note_object(request, f"{event.type} {source_id}".strip())
    if source_id:
        check_source(caller, source_id)
        backend.check_visible(caller.reader, source_id)
    if isinstance(content, SourceChanged) and content.root:
        resolve_root(backend, caller, content.source_id, content.root)
    event = replace_origin(event, caller.name, caller.reader)
    backend.accept_if_new(event)
    return event
