"""Queries: asked, waited for, watched and cancelled."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from config.errors import TransientError
from config.settings import OPTIONAL_STAGES
from skills.bundle.model import Bundle
from skills.events import QueryAsked
from tasks.journal.protocol import Job
from tasks.query.context import check_query
from workers.backend.store_backend import StoreBackend
from workers.http.access import Caller, CurrentCaller
from workers.http.idempotency import IdempotencyKey, record_job
from workers.http.job_waiter import JobWaiter
from workers.http.jobs import Accepted, get_visible_job

_HEARTBEAT_SECONDS = 15
_POLL_SECONDS = 0.05
_PREFER_WAIT = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?(\d{1,6})\"?\s*(?=$|[,;])", re.IGNORECASE)

QueryId = Annotated[str, Path(description="as `POST /v1/queries` gave it")]

Preference = Annotated[
    str | None, Header(description="`wait=N`: wait up to N seconds for the answer")
]

_EVENT_STREAM_RESPONSE: dict[str, Any] = {
    "description": "server-sent events: `stage` (stage, milliseconds), then one of `done`, "
    "`failed` and `cancelled` with what `GET /v1/queries/{id}` tells",
    "content": {"text/event-stream": {}},
}


class QueryRequest(QueryAsked):
    """A task in words, with how much the answer may hold."""

    task: str = Field(
        description="what is to be done, in words; `limits.query_characters` bounds it",
        json_schema_extra={"minLength": 1, "pattern": r"\S"},
    )
    without: tuple[str, ...] = Field(
        (),
        description="stages to leave out",
        json_schema_extra={"items": {"type": "string", "enum": list(OPTIONAL_STAGES)}},
    )


class QueryState(BaseModel):
    """Where a query stands.

    state: `accepted`, `done` (with its bundle), `failed` (with the reason) or `cancelled`. stages:
    those that an open one has come to.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    state: str
    stages: list[str] | None = None
    bundle: Bundle | None = None
    reason: str | None = None


def query_routes(backend: StoreBackend) -> APIRouter:
    """The routes of queries over an open channel."""
    router = APIRouter(tags=["queries"])
    query_service = _QueryService(backend)

    @router.post(
        "/v1/queries",
        status_code=202,
        response_model=Accepted,
        responses={200: {"model": QueryState, "description": "It has ended: with `Prefer: wait`"}},
    )
    async def submit_query(
        query: QueryRequest,
        caller: CurrentCaller,
        key: IdempotencyKey = None,
        prefer: Preference = None,
    ) -> Response:
        """Accept a query; where it stands is told at `Location`."""
        check_query(query, backend.settings.limits.query_characters)
        request = QueryAsked.model_construct(**dict(query))
        query_id = await run_in_threadpool(record_job, backend, caller, request, key)
        return await query_service.respond_accepted(query_id, caller, prefer)

    @router.get("/v1/queries/{query_id}", response_model=QueryState)
    def get_query(query_id: QueryId, caller: CurrentCaller) -> Response:
        """Where a query stands, with its bundle when done."""
        job = query_service.job(query_id, caller)
        stages = backend.journal.list_stages(query_id) if job.state == "accepted" else []
        return _respond_state(job, stages)

    @router.delete("/v1/queries/{query_id}", response_model=QueryState)
    def cancel_query(query_id: QueryId, caller: CurrentCaller) -> Response:
        """Cancel a query: it is not begun, or stops at its next stage. One that has ended stays
        as it is."""
        query_service.job(query_id, caller)
        backend.journal.cancel_job(query_id)
        return _respond_state(query_service.job(query_id, caller), [])

    @router.get(
        "/v1/queries/{query_id}/events",
        response_class=EventSourceResponse,
        responses={200: _EVENT_STREAM_RESPONSE},
    )
    async def stream_query_events(
        query_id: QueryId, caller: CurrentCaller, request: Request
    ) -> Response:
        """The stages of a query as they pass, then how it ended."""
        del request
        await run_in_threadpool(query_service.job, query_id, caller)
        return query_service.stream_events(query_id, caller)

    return router


class _QueryService:
    """What the routes of queries share in one event loop."""

    def __init__(self, backend: StoreBackend) -> None:
        self._backend = backend
        self._streams = 0
        self._job_waiter = JobWaiter(backend.journal)

    def job(self, query_id: str, caller: Caller) -> Job:
        """A query that this caller may see; raises NotFoundError for any other id."""
        return get_visible_job(self._backend, caller, query_id, "query")

    async def respond_accepted(self, query_id: str, caller: Caller, prefer: str | None) -> Response:
        """That a query is accepted; or how it ended, where the caller prefers to wait so long."""
        headers = {"Location": f"/v1/queries/{query_id}"}
        seconds = self._parse_wait_seconds(prefer)
        if seconds is not None:
            headers["Preference-Applied"] = f"wait={seconds}"
            if await self._job_waiter.wait_until_ended(query_id, seconds):
                return _respond_state(
                    await run_in_threadpool(self.job, query_id, caller), [], headers
                )
        return JSONResponse({"id": query_id}, 202, headers=headers)

    def _parse_wait_seconds(self, prefer: str | None) -> int | None:
        """Seconds of `Prefer: wait=N` (RFC 7240), bounded; None without."""
        found = _PREFER_WAIT.search(prefer or "")
        if found is None:
            return None
        return min(int(found[1]), int(self._backend.settings.gateway.wait_seconds))

    def stream_events(self, query_id: str, caller: Caller) -> EventSourceResponse:
        """The events of a query; raises HTTPException when too many streams are open."""
        most = self._backend.settings.gateway.streams
        if self._streams >= most:
            raise HTTPException(503, f"{most} event streams are open already (gateway.streams)")
        return EventSourceResponse(self._events(query_id, caller), ping=_HEARTBEAT_SECONDS)

    async def _events(self, query_id: str, caller: Caller) -> AsyncIterator[ServerSentEvent]:
        sent_stages: set[str] = set()
        self._streams += 1
        try:
            while not await self._job_waiter.wait_until_ended(query_id, _POLL_SECONDS):
                for stage in await self._stages(query_id):
                    if stage not in sent_stages:
                        sent_stages.add(stage)
                        yield _event("stage", {"stage": stage, "milliseconds": None})
            job = await run_in_threadpool(self.job, query_id, caller)
            timings: dict[str, float] = (job.outcome or {}).get("timings_ms", {})
            for stage, milliseconds in timings.items():
                yield _event("stage", {"stage": stage, "milliseconds": milliseconds})
            yield _event(job.state, _state_data(job, []))
        finally:
            self._streams -= 1

    async def _stages(self, query_id: str) -> list[str]:
        try:
            return await run_in_threadpool(self._backend.journal.list_stages, query_id)
        except TransientError:
            return []  # the stream goes on, and the next look may be answered


def _event(name: str, data: dict[str, Any]) -> ServerSentEvent:
    return ServerSentEvent(json.dumps(data, ensure_ascii=False), event=name)


def _state_data(job: Job, stages: list[str]) -> dict[str, Any]:
    data: dict[str, Any] = {"id": job.id, "state": job.state}
    if stages:
        data["stages"] = stages
    if job.outcome is not None:
        data["bundle"] = job.outcome
    if job.reason:
        data["reason"] = job.reason
    return data


def _respond_state(job: Job, stages: list[str], headers: dict[str, str] | None = None) -> Response:
    return JSONResponse(_state_data(job, stages), headers=headers)
