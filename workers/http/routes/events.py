"""Events about sources and skills, and what they led to."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict
from starlette.concurrency import run_in_threadpool

from config.errors import UsageError
from skills.events import Event, SourceChanged, parse_event, parse_request, with_origin
from tasks.journal.protocol import job_id
from workers.backend.channel import Channel
from workers.http.access import OWN, Asking, Caller, needs
from workers.http.jobs import Accepted, job_of
from workers.http.source_roots import check_root
from workers.http.tokens import Scope


class EventState(BaseModel):
    """Where an event stands. outcome: what it led to; reason: why it failed."""

    model_config = ConfigDict(frozen=True)

    id: str
    state: str
    outcome: dict[str, Any] | None
    reason: str


def event_routes(channel: Channel) -> APIRouter:
    """The routes of events over an open channel."""
    router = APIRouter(tags=["events"])

    @router.post(
        "/v1/events",
        status_code=202,
        dependencies=[needs(Scope.WRITE)],
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
    async def accept(request: Request, response: Response, caller: Asking) -> Accepted:
        """Accept a CloudEvents object (structured mode) about a source or a skill, or a query."""
        text = await request.body()
        event = await run_in_threadpool(_accepted, channel, caller, text)
        kind = "queries" if event.type.startswith("skillbus.query.") else "events"
        response.headers["Location"] = f"/v1/{kind}/{job_id(event)}"
        return Accepted(id=job_id(event))

    @router.get("/v1/events/{event_id}")
    def event_state(event_id: str, caller: Asking) -> EventState:
        """The state of an event, with what it led to."""
        job = job_of(channel, caller, event_id, "event")
        return EventState(id=job.id, state=job.state, outcome=job.outcome, reason=job.reason)

    return router


def _accepted(channel: Channel, caller: Caller, text: bytes) -> Event:
    """Record an event; raises UsageError for one that this caller may not send."""
    event = parse_event(text) if caller is OWN else parse_request(text)
    content = event.content()
    if event.replyto:
        raise UsageError("replyto: replies go to queues, and this came over HTTP; leave it out")
    if isinstance(content, SourceChanged) and content.root:
        check_root(channel, caller, content.source_id, content.root)
    event = with_origin(event, caller.name)
    channel.accept_once(event)
    return event
