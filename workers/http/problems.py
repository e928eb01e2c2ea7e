"""Errors as problem details (RFC 9457)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from config.errors import (
    MisconfiguredError,
    NotFoundError,
    PermanentError,
    SkillbusError,
    TransientError,
    UsageError,
)
from skills.events import describe_problems
from workers.http.authentication import Caller
from workers.http.models import ResponseModel

log = structlog.get_logger()

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 2

_PROBLEM_TYPES = {
    400: ("not-possible", "not possible"),
    401: ("no-token", "no valid token"),
    403: ("not-allowed", "not allowed"),
    404: ("not-found", "not found"),
    405: ("wrong-method", "wrong method"),
    408: ("too-slow", "too slow"),
    409: ("conflict", "conflict"),
    413: ("too-large", "too large"),
    415: ("wrong-content-type", "wrong content type"),
    421: ("wrong-host", "wrong host"),
    422: ("not-valid", "not valid"),
    429: ("too-many-requests", "too many requests"),
    500: ("error", "error"),
    503: ("try-again", "try again"),
}
_FAILED = ("failed", "failed")
"""Of the status 422 if the request was valid, and its work failed permanently."""


class Problem(ResponseModel):
    """Problem details of a failed request (RFC 9457)."""

    type: str = Field(description="`urn:skillbus:problem:` and a name that does not change")
    title: str
    status: int
    detail: str = Field(description="what is wrong, and what to do about it")
    instance: str = Field(description="the requested path")
    request_id: str = Field(description="also in the log lines of the request")


def problem_response(
    request: Request,
    status: int,
    detail: str,
    headers: Mapping[str, str] | None = None,
    *,
    problem_type: tuple[str, str] | None = None,
) -> Response:
    """Return a problem as the response to a request. problem_type: name and title, by default those
    of the status."""
    scope = request.scope
    slug, title = problem_type or _PROBLEM_TYPES.get(status, ("error", "error"))
    body = Problem(
        type=f"urn:skillbus:problem:{slug}",
        title=title,
        status=status,
        detail=detail.encode("utf-8", "replace").decode(),
        instance=scope.get("raw_path", b"").decode("ascii", "replace")[:2_000],
        request_id=str(scope.get("state", {}).get("request_id", "")),
    )
    more = dict(headers or {})
    if status in (429, 503):
        more.setdefault("Retry-After", str(RETRY_SECONDS))
    if status in (408, 413):
        more["Connection"] = "close"
    return JSONResponse(body.model_dump(), status, headers=more, media_type=MEDIA_TYPE)


def install_error_handlers(app: FastAPI, respond: Callable[..., Response], no_route: str) -> None:
    """Answer every error of an application.

    respond: makes the response, as `problem_response` does. no_route: detail for requests that
    match no route.
    """

    async def handle_skillbus_error(request: Request, error: Any) -> Response:
        detail = describe_error(error, request.state.caller)
        status = get_http_status(error)
        return respond(request, status, detail, problem_type=_FAILED if status == 422 else None)

    async def handle_validation_error(request: Request, error: Any) -> Response:
        return respond(request, 422, describe_problems(error.errors()))

    async def handle_http_exception(request: Request, error: Any) -> Response:
        status, detail, headers = error.status_code, str(error.detail), error.headers
        if status == 400 and (reason := _explain_unreadable_json(error.__cause__)):
            status, detail = 422, f"the body is not valid JSON: {reason}"
        elif status == 405:
            path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
            headers = allow_header(app.state.routes, path) or headers
            detail = f"this path takes only {headers['Allow']}"
        elif status == 404 and detail == HTTPStatus.NOT_FOUND.phrase:  # Starlette found no route
            detail = no_route
        return respond(request, status, detail, headers)

    async def handle_unexpected_error(request: Request, error: Exception) -> Response:
        log.error("request failed", error=repr(error))
        return respond(request, 500, "this is a bug in skillbus; the server's log has the details")

    app.add_exception_handler(SkillbusError, handle_skillbus_error)
    app.add_exception_handler(RequestValidationError, handle_validation_error)
    app.add_exception_handler(HTTPException, handle_http_exception)
    app.add_exception_handler(ClientDisconnect, handle_disconnect)
    app.add_exception_handler(Exception, handle_unexpected_error)


def get_http_status(error: SkillbusError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, NotFoundError):
        return 404
    if isinstance(error, TransientError):
        return 503
    if isinstance(error, UsageError):
        return 400
    return 422 if isinstance(error, PermanentError) else 500


def describe_error(error: SkillbusError, caller: Caller) -> str:
    """Return the information on an error for a caller, and log details for operators."""
    detail = str(error)
    if isinstance(error, MisconfiguredError):
        log.error("a setting is wrong", reason=detail)
    elif error.public_message != detail:
        log.warning("a server failed", reason=detail)
    # Only the local user may read addresses of servers and paths of secrets.
    return error.public_message if caller.name else detail


def _explain_unreadable_json(cause: BaseException | None) -> str:
    """Return why FastAPI could not parse a body, "" for other errors than those of `json.loads`."""
    if isinstance(cause, RecursionError):
        return "it is nested too deeply"
    if isinstance(cause, UnicodeDecodeError):
        return "it is not UTF-8"
    return "a number has too many digits" if isinstance(cause, ValueError) else ""


async def handle_disconnect(request: Request, _: Exception) -> Response:
    """Return a response for the log only: its client has left while it sent the body."""
    detail = "the connection was closed before the body was complete"
    return problem_response(request, 400, detail)


def allow_header(routes: Iterable[APIRoute], path: str) -> dict[str, str]:
    """Return the header with the methods of all routes of a path; each route has only its own.

    They are those of the routes with the same path as the first matching route. Later matches may
    have more general paths, such as that of a skill, whose id may hold slashes.
    """
    matching = [route for route in routes if route.path_regex.match(path)]
    methods = {
        method
        for route in matching
        if route.path_format == matching[0].path_format
        for method in route.methods or ()
    }
    if "GET" in methods:
        methods.add("HEAD")
    return {"Allow": ", ".join(sorted(methods))} if methods else {}
