"""Queries: submission, state, streaming and cancellation."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field, ValidationError
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from config.errors import NotFoundError, TransientError, UsageError
from config.settings import OPTIONAL_STAGES
from skills.bundle.markdown import render_answer
from skills.bundle.model import Bundle
from skills.events import GATEWAY_SOURCE, QueryAsked, describe_validation_error
from tasks.journal.protocol import Job
from tasks.query.context import check_query
from workers.backend.store_backend import StoreBackend
from workers.http.authentication import Caller, CurrentCaller
from workers.http.dependencies import CurrentBackend, from_state
from workers.http.idempotency import IdempotencyKey, RecordedJob, record_job
from workers.http.job_waiter import JobWaiter
from workers.http.jobs import Accepted, get_visible_job
from workers.http.models import ResponseModel

_HEARTBEAT_SECONDS = 15
_LISTED_CHARACTERS = 200
_POLL_SECONDS = 0.05
_RETRY_SECONDS = 0.5
_PREFER_WAIT = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?(\d+)\"?\s*(?=$|[,;])", re.IGNORECASE)

QueryId = Annotated[str, Path(description="the `id` that `POST /v1/queries` returned")]

Preferences = Annotated[
    list[str] | None, Header(description="`wait=N`: wait up to N seconds for the bundle")
]

AnswerWithin = Annotated[
    int | None,
    Query(
        ge=1,
        le=600_000,
        description="milliseconds to wait for the bundle, at most `gateway.wait_seconds`, "
        "then cancel the query; stages that would make it late are left out, see `degraded`; takes "
        "the place of `Prefer: wait`",
    ),
]

_MARKDOWN = "text/markdown"

_EVENT_STREAM_RESPONSE: dict[str, Any] = {
    "description": "server-sent events: `stage` (stage, milliseconds), then one of `done`, "
    "`failed` and `cancelled` with the JSON of `GET /v1/queries/{id}`",
    "content": {"text/event-stream": {}},
}


class QueryRequest(QueryAsked):
    """A task in words, with the limits of its bundle."""

    task: str = Field(
        "",
        description="the task in words; `limits.query_characters` bounds its length; may be left "
        "out with an `obstacle` or `resend`, which then is about the session's last task",
        json_schema_extra={"minLength": 1, "pattern": r"\S"},
    )
    without: tuple[str, ...] = Field(
        (),
        description="stages to skip",
        json_schema_extra={"items": {"type": "string", "enum": list(OPTIONAL_STAGES)}},
    )


class QueryState(ResponseModel):
    """State of a query.

    state: `accepted`, `done` (with its bundle), `failed` (with the reason) or `cancelled`. stages:
    those that an accepted query has reached.
    """

    id: str
    state: str
    stages: list[str] | None = None
    bundle: Bundle | None = None
    reason: str | None = None


class AskedQuery(ResponseModel):
    """A query in a list. task: its beginning. asked: seconds since the epoch."""

    id: str
    task: str
    asked: float
    state: str


class AskedQueries(ResponseModel):
    """Queries of a caller, the newest first."""

    queries: list[AskedQuery]


def _describe_state(what: str) -> dict[int | str, dict[str, Any]]:
    description = f"{what} With `Accept: text/markdown` a bundle is in its Markdown form"
    content = {_MARKDOWN: {"schema": {"type": "string"}}}
    return {200: {"model": QueryState, "content": content, "description": description}}


CurrentQueries = Annotated["QueryService", from_state("queries")]

router = APIRouter(tags=["queries"])


@router.post(
    "/v1/queries",
    status_code=202,
    response_model=Accepted,
    responses=_describe_state(
        "The query has ended: only with `Prefer: wait` or `answer_within_ms`."
    ),
)
async def submit_query(
    queries: CurrentQueries,
    caller: CurrentCaller,
    query: QueryRequest,
    request: Request,
    key: IdempotencyKey = None,
    prefer: Preferences = None,
    answer_within_ms: AnswerWithin = None,
) -> Response:
    """Accept a query; `Location` is the URL of its state."""
    received = time.monotonic()
    within = None if answer_within_ms is None else answer_within_ms / 1000
    job = await queries.accept(query, caller, key, within)
    as_markdown = _accepts_markdown(request)
    if within is None:
        return await queries.respond_accepted(job.id, caller, prefer or (), as_markdown)
    seconds = within - (time.monotonic() - received)
    return await queries.respond_in_time(job, caller, seconds, as_markdown)


@router.get("/v1/queries")
def list_queries(backend: CurrentBackend, caller: CurrentCaller) -> AskedQueries:
    """List recent queries of this caller that are still kept, newest first."""
    return AskedQueries(
        queries=[
            AskedQuery(
                id=one.id,
                task=one.task[:_LISTED_CHARACTERS],
                asked=one.accepted,
                state=one.state,
            )
            for one in backend.journal.list_asked(caller.name)
        ]
    )


@router.get(
    "/v1/queries/{query_id}",
    response_model=QueryState,
    responses=_describe_state("The state."),
)
def get_query(
    backend: CurrentBackend, caller: CurrentCaller, query_id: QueryId, request: Request
) -> Response:
    """Show the state of a query, with its bundle when done."""
    job = get_visible_job(backend, caller, query_id, "query")
    stages = backend.journal.list_stages(query_id) if job.state == "accepted" else []
    return _respond_state(job, stages, as_markdown=_accepts_markdown(request))


@router.delete("/v1/queries/{query_id}", response_model=QueryState)
def cancel_query(backend: CurrentBackend, caller: CurrentCaller, query_id: QueryId) -> Response:
    """Cancel a query: it is not started, or stops before its next stage. A query that has
    ended is unchanged."""
    get_visible_job(backend, caller, query_id, "query")
    backend.journal.cancel_job(query_id)
    return _respond_state(get_visible_job(backend, caller, query_id, "query"), [])


@router.get(
    "/v1/queries/{query_id}/events",
    response_class=EventSourceResponse,
    responses={200: _EVENT_STREAM_RESPONSE},
)
async def stream_query_events(
    queries: CurrentQueries, caller: CurrentCaller, query_id: QueryId
) -> Response:
    """Stream the stages of a query as they start, then its final state."""
    await run_in_threadpool(queries.get_job, query_id, caller)
    return queries.stream_events(query_id, caller)


local_router = APIRouter(tags=["queries"])
"""The route of the commands on this machine."""


@local_router.post("/v1/answers")
def answer(backend: CurrentBackend, query: QueryAsked) -> dict[str, Any]:
    """Answer a query and return its bundle; for the commands on this machine.

    Raises HTTPException (422) for invalid text, as `record_job` does.
    """
    try:
        return backend.answer_query(query, GATEWAY_SOURCE)
    except ValidationError as error:
        raise HTTPException(422, describe_validation_error(error)) from None


class QueryService:
    """State that the routes of queries share in one event loop."""

    def __init__(self, backend: StoreBackend) -> None:
        self._backend = backend
        self._streams = 0
        self._job_waiter = JobWaiter(backend.journal)

    async def accept(
        self,
        query: QueryRequest,
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
            raise UsageError("the task is empty; leave it out for that of the session")
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
                return _respond_state(job, [], headers, as_markdown=as_markdown)
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
        return _respond_state(job, [], headers, as_markdown=as_markdown)

    def _parse_wait_seconds(self, prefer: Sequence[str]) -> int | None:
        """Return the seconds of `Prefer: wait=N` (RFC 7240), bounded; None without it."""
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


def _accepts_markdown(request: Request) -> bool:
    """Return whether the caller asks for Markdown, and does not accept JSON as well."""
    accepted = request.headers.get("accept", "").lower().split(",")
    types = {one.partition(";")[0].strip() for one in accepted}
    return _MARKDOWN in types and "application/json" not in types


def _respond_state(
    job: Job,
    stages: list[str],
    headers: dict[str, str] | None = None,
    *,
    as_markdown: bool = False,
) -> Response:
    if as_markdown and job.state == "done" and job.outcome is not None:
        bundle = Bundle.model_validate(job.outcome)
        return Response(
            render_answer(bundle),
            media_type=_MARKDOWN,
            headers={
                **(headers or {}),
                "Bundle-Status": bundle.status,
                "Bundle-Skills": str(len(bundle.skills)),
            },
        )
    return JSONResponse(_state_data(job, stages), headers=headers)
