"""Queries: submission, state, streaming and cancellation."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, Response
from pydantic import Field, ValidationError
from sse_starlette.sse import EventSourceResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from config.settings import OPTIONAL_STAGES
from skills.bundle.model import Bundle
from skills.events import GATEWAY_SOURCE, QueryAsked, describe_validation_error
from workers.http.authentication import CurrentCaller
from workers.http.dependencies import CurrentBackend, from_state
from workers.http.jobs import Accepted, IdempotencyKey, get_visible_job
from workers.http.models import ResponseModel
from workers.http.queries.query_service import MARKDOWN, QueryService, respond_state

_LISTED_CHARACTERS = 200

QueryId = Annotated[str, Path(description="the `id` that `POST /v1/queries` returned")]

Preferences = Annotated[
    list[str] | None, Header(description="`wait=N`: wait up to N seconds for the bundle")
]

AnswerWithin = Annotated[
    int | None,
    Query(
        ge=1,
        le=600_000,
        description="milliseconds to wait for the bundle, at most `gateway.wait_seconds`, then "
        "cancel the query; stages that would make it late are left out and listed in `degraded`; "
        "replaces `Prefer: wait`",
    ),
]


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
        "out with `obstacle` or `resend`, which then apply to the session's last task",
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
    content = {MARKDOWN: {"schema": {"type": "string"}}}
    return {200: {"model": QueryState, "content": content, "description": description}}


CurrentQueries = Annotated[QueryService, from_state("queries")]

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
    return respond_state(job, stages, as_markdown=_accepts_markdown(request))


@router.delete("/v1/queries/{query_id}", response_model=QueryState)
def cancel_query(backend: CurrentBackend, caller: CurrentCaller, query_id: QueryId) -> Response:
    """Cancel a query: it is not started, or stops before its next stage. A query that has
    ended is unchanged."""
    get_visible_job(backend, caller, query_id, "query")
    backend.journal.cancel_job(query_id)
    return respond_state(get_visible_job(backend, caller, query_id, "query"), [])


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


def _accepts_markdown(request: Request) -> bool:
    """Return whether the caller asks for Markdown, and does not accept JSON as well."""
    accepted = request.headers.get("accept", "").lower().split(",")
    types = {one.partition(";")[0].strip() for one in accepted}
    return MARKDOWN in types and "application/json" not in types
