"""Queries over HTTP: accepted, awaited, and streamed."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from fastapi import Response
from fastapi.responses import JSONResponse
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from config.errors import NotFoundError, TransientError, UsageError
from skills.bundle.markdown import render_answer
from skills.bundle.model import Bundle
from skills.events import QueryAsked
from tasks.journal.protocol import Job
from tasks.query.context import check_query
from workers.backend.store_backend import StoreBackend
from workers.http.authentication import Caller
from workers.http.jobs import RecordedJob, get_visible_job, record_job
from workers.http.queries.job_waiter import JobWaiter

MARKDOWN = "text/markdown"

_HEARTBEAT_SECONDS = 15
_POLL_SECONDS = 0.05
_RETRY_SECONDS = 0.5
_PREFER_WAIT = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?(\d+)\"?\s*(?=$|[,;])", re.IGNORECASE)


class QueryService:
    """Accepts queries, waits for their answers and streams their stages; for one event loop."""

    def __init__(self, backend: StoreBackend) -> None:
        self._backend = backend
        self._streams = 0
        self._job_waiter = JobWaiter(backend.journal)

    async def accept(
        self,
        query: QueryAsked,
        caller: Caller,
        key: str | None = None,
        seconds: float | None = None,
    ) -> RecordedJob:
        """Record a query; raises UsageError for an invalid query.

        seconds: time within which the query is to be answered, if the caller limits it.
        """
        check_query(query, self._backend.settings.limits.query_characters)
        if query.pins:
            await run_in_threadpool(self._backend.check_pins, query, caller.reader)
        if "task" in query.model_fields_set and not query.task.strip():
            raise UsageError("the task is empty; omit it to use the session's last task")
        return await run_in_threadpool(record_job, self._backend, caller, query, key, seconds)

    async def wait_until_ended(self, query_id: str, seconds: float) -> bool:
        """Wait until a query has ended; return False if it has not in this number of seconds."""
        return await self._job_waiter.wait_until_ended(query_id, seconds)

    def get_job(self, query_id: str, caller: Caller) -> Job:
        """Return a query that this caller may see; raises NotFoundError for any other id."""
        return get_visible_job(self._backend, caller, query_id, "query")

    async def respond_accepted(
        self, query_id: str, caller: Caller, prefer: Sequence[str], as_markdown: bool
    ) -> Response:
        """Respond 202; or with the final state, if the query ends within `Prefer: wait=N`."""
        headers = {"Location": f"/v1/queries/{query_id}"}
        seconds = self._parse_wait_seconds(prefer)
        if seconds is not None:
            headers["Preference-Applied"] = f"wait={seconds}"
            if await self._job_waiter.wait_until_ended(query_id, seconds):
                job = await run_in_threadpool(self.get_job, query_id, caller)
                return respond_state(job, [], headers, as_markdown=as_markdown)
        return JSONResponse({"id": query_id}, 202, headers=headers)

    async def respond_in_time(
        self, query: RecordedJob, caller: Caller, seconds: float, as_markdown: bool
    ) -> Response:
        """Respond with the final state; cancel the query if it has not ended in time.

        Otherwise its session would count an answer as sent that the caller does not wait for. A
        query that an earlier request recorded goes on, since that request may wait for it.
        """
        headers = {"Location": f"/v1/queries/{query.id}"}
        seconds = min(max(seconds, 0.0), self._backend.settings.gateway.wait_seconds)
        if not await self._job_waiter.wait_until_ended(query.id, seconds):
            if not query.is_new:
                return JSONResponse({"id": query.id}, 202, headers=headers)
            await run_in_threadpool(self._backend.journal.cancel_job, query.id)
        job = await run_in_threadpool(self.get_job, query.id, caller)
        return respond_state(job, [], headers, as_markdown=as_markdown)

    def _parse_wait_seconds(self, prefer: Sequence[str]) -> int | None:
        """Return the seconds of `Prefer: wait=N` (RFC 7240), bounded, or None."""
        found = _PREFER_WAIT.search(",".join(prefer))
        if found is None:
            return None
        digits = found[1][:9]  # Python converts no number of thousands of digits
        return min(int(digits), int(self._backend.settings.gateway.wait_seconds))

    def stream_events(self, query_id: str, caller: Caller) -> EventSourceResponse:
        """Return the event stream of a query; it raises HTTPException if too many are open."""
        return _LimitedStream(self._generate_events(query_id, caller), self._count_stream())

    @contextmanager
    def _count_stream(self) -> Iterator[None]:
        limit = self._backend.settings.gateway.streams
        if self._streams >= limit:
            raise HTTPException(503, f"{limit} event streams are open already (gateway.streams)")
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    async def _generate_events(
        self, query_id: str, caller: Caller
    ) -> AsyncIterator[ServerSentEvent]:
        sent_stages: set[str] = set()
        while not await self._job_waiter.wait_until_ended(query_id, _POLL_SECONDS):
            for stage in await self._list_stages(query_id):
                if stage not in sent_stages:
                    sent_stages.add(stage)
                    yield _event("stage", {"stage": stage, "milliseconds": None})
        job = await self._find_ended_job(query_id, caller)
        if job is None:
            return
        timings: dict[str, float] = (job.outcome or {}).get("timings_ms", {})
        for stage, milliseconds in timings.items():
            yield _event("stage", {"stage": stage, "milliseconds": milliseconds})
        yield _event(job.state, _state_data(job, []))

    async def _list_stages(self, query_id: str) -> list[str]:
        try:
            return await run_in_threadpool(self._backend.journal.list_stages, query_id)
        except TransientError:
            return []  # the stream stays open, and the next poll may succeed

    async def _find_ended_job(self, query_id: str, caller: Caller) -> Job | None:
        """Return a query that has ended, None if it was deleted since; waits for the journal."""
        while True:
            try:
                return await run_in_threadpool(self.get_job, query_id, caller)
            except NotFoundError:
                return None
            except TransientError:
                await asyncio.sleep(_RETRY_SECONDS)


class _LimitedStream(EventSourceResponse):
    """Response that streams events within a context, which may refuse it before it starts."""

    def __init__(
        self, events: AsyncIterator[ServerSentEvent], context: AbstractContextManager[None]
    ) -> None:
        super().__init__(events, ping=_HEARTBEAT_SECONDS)
        self._context = context

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._context:
            await super().__call__(scope, receive, send)


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


def respond_state(
    job: Job,
    stages: list[str],
    headers: dict[str, str] | None = None,
    *,
    as_markdown: bool = False,
) -> Response:
    """Return the state of a query, a bundle on request as Markdown. stages: those that an open
    query has reached."""
    if as_markdown and job.state == "done" and job.outcome is not None:
        bundle = Bundle.model_validate(job.outcome)
        return Response(
            render_answer(bundle),
            media_type=MARKDOWN,
            headers={
                **(headers or {}),
                "Bundle-Status": bundle.status,
                "Bundle-Skills": str(len(bundle.skills)),
            },
        )
    return JSONResponse(_state_data(job, stages), headers=headers)
