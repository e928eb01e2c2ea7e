"""The HTTP gateway of `serve`: queries and events over a socket in the home."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.trustedhost import TrustedHostMiddleware
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException

from config.errors import NotFoundError, PermanentError, TransientError, UsageError
from skills.events import Event, QueryAsked
from tasks.query import check
from workers.channel import Channel
from workers.letters import retry
from workers.metrics import CONTENT_TYPE, OneProcess
from workers.status import status_of


class Accepted(BaseModel):
    """A query or event that is on disk and will be worked on."""

    model_config = ConfigDict(frozen=True)

    id: str


class QueryState(BaseModel):
    """Where a query stands; `bundle` once it is done, `reason` when it failed."""

    model_config = ConfigDict(frozen=True)

    id: str
    state: str
    bundle: dict[str, Any] | None = None
    reason: str | None = None


def create_gateway(
    channel: Channel, on_a_port: bool = False, figures: OneProcess | None = None
) -> FastAPI:
    """The gateway over an open channel, with `figures` for Prometheus.

    What changes the library is there only on the socket, which is the user's alone: anybody on
    the machine, and any page in a browser, can reach a port.
    """
    gateway = FastAPI(title="skillbus", version="1", docs_url=None, redoc_url=None)
    gateway.add_exception_handler(NotFoundError, _problem(404, "not found"))
    gateway.add_exception_handler(UsageError, _problem(400, "not possible"))
    gateway.add_exception_handler(RequestValidationError, _invalid)
    gateway.add_exception_handler(HTTPException, _refused)
    gateway.add_exception_handler(PermanentError, _problem(422, "failed"))
    gateway.add_exception_handler(TransientError, _problem(503, "try again"))

    @gateway.post("/v1/queries", status_code=202)
    def ask(query: QueryAsked, response: Response) -> Accepted:
        """Accept a query; its bundle is at `Location` when it is done."""
        check(query, channel.settings.limits.query_characters)
        query_id = channel.ask(query, "skillbus/gateway")
        response.headers["Location"] = f"/v1/queries/{query_id}"
        return Accepted(id=query_id)

    @gateway.get("/v1/queries/{query_id}", response_model_exclude_none=True)
    def query_state(query_id: str) -> QueryState:
        """The state of a query, with its bundle when done."""
        job = channel.journal.job(query_id)
        return QueryState(id=job.id, state=job.state, bundle=job.outcome, reason=job.reason or None)

    @gateway.get("/v1/status")
    def status() -> dict[str, Any]:
        """Skills by state, what is under way, and sources."""
        return status_of(
            channel.settings, channel.graph, channel.journal, True, channel.activity.trouble
        )

    if figures is not None:

        @gateway.get("/metrics")
        def metrics() -> Response:
            """Figures of this process and of the library, in Prometheus' text format."""
            return Response(figures.text(), media_type=CONTENT_TYPE)

    if on_a_port:
        # A page whose name resolves to this machine must not pass for it.
        gateway.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])
    else:
        _add_socket_routes(gateway, channel)
    return gateway


def _add_socket_routes(gateway: FastAPI, channel: Channel) -> None:

    @gateway.post("/v1/events", status_code=202)
    def accept(event: Event) -> Accepted:
        """Accept a CloudEvents object about a source or a skill."""
        return Accepted(id=channel.accept(event))

    @gateway.get("/v1/events/{event_id}")
    def event_state(event_id: str) -> dict[str, Any]:
        """The state of an event, with what it led to."""
        job = channel.journal.job(event_id)
        return {"id": job.id, "state": job.state, "outcome": job.outcome, "reason": job.reason}

    @gateway.post("/v1/letters/{letter_id}/retry")
    def retry_letter(letter_id: str) -> dict[str, Any]:
        """Send a dead letter's task again; the letter is gone once that is done."""
        return retry(channel, letter_id)

    @gateway.post("/v1/answers")
    def answer(query: QueryAsked) -> dict[str, Any]:
        """Ask and wait: the bundle itself, for the commands of this machine."""
        return channel.answer(query, "skillbus/gateway")


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    """What is wrong with a request body, in one line."""
    del request
    problems = error.errors() if isinstance(error, RequestValidationError) else []
    detail = "; ".join(
        f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in problems
    )
    return _answer(422, "not valid", detail)


async def _refused(request: Request, error: Exception) -> JSONResponse:
    del request
    code = error.status_code if isinstance(error, HTTPException) else 500
    return _answer(code, "refused", str(getattr(error, "detail", error)))


def _answer(code: int, title: str, detail: str) -> JSONResponse:
    return JSONResponse(
        {"title": title, "status": code, "detail": detail},
        status_code=code,
        media_type="application/problem+json",
    )


def _problem(code: int, title: str) -> Any:
    async def handle(request: Request, error: Exception) -> JSONResponse:
        del request
        return _answer(code, title, str(error))

    return handle
