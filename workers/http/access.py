"""Access checks: the middleware that every request passes before a route handles it.

The order of the checks: a request id is assigned; the number of connections, the `Host` and the
`Origin` header are checked; the caller is authenticated; the rate is limited; the size and time
of the body are bounded. Each response gets security headers and a log line.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

import structlog
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from config.errors import MisconfiguredError
from config.inbound_settings import GatewaySettings
from config.tracing import Span
from workers.audit.commands import RECORDED_HEADER
from workers.audit.log import AuditLog
from workers.audit.requests import RequestRecorder
from workers.http.access_watch import AccessWatch
from workers.http.authentication import ANONYMOUS_CALLER, Caller, authenticate, get_bearer
from workers.http.limits.rate_limits import RateLimiter, get_client_network
from workers.http.limits.request_bodies import BoundedBody, check_content_length
from workers.http.limits.slow_clients import OVERLOADED
from workers.http.oidc.verifier import OidcVerifier
from workers.http.problems import problem_response
from workers.http.request_spans import end_request_span, start_request_span
from workers.http.responses.response_sender import ResponseSender
from workers.http.tokens import ANONYMOUS, TokenStore
from workers.webhooks.delivery import HOSTS

log = structlog.get_logger()

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")
PUBLIC_PATHS = ("/healthz", "/readyz")
"""Paths that need no token."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(?::\d*)?")
_UPLOAD_ROUTE = ("POST", "/v1/skills")
_WEBHOOK_PREFIX = "/v1/webhooks/"
"""Prefix of paths whose requests are signed and need no token."""
_WEBHOOK_PATHS = frozenset(f"{_WEBHOOK_PREFIX}{host}" for host in HOSTS)
WELL_KNOWN_PREFIXES = ("/.well-known/agent-skills/", "/.well-known/skills/")
"""Prefixes of paths with public skills, which need no token."""
_UNKNOWN = "this token is unknown or expired"
_LOST_ACCESS = "the access that this request began with has ended or changed; send it again"


@dataclass(frozen=True, slots=True)
class AccessRules:
    """Rules by which a gateway accepts requests.

    tokens: None on the home's socket, which only its user can open. allow_anonymous: whether a
    token is optional as long as no token was added. hosts: accepted `Host` headers, None for any.
    oidc: checks tokens of an issuer, None without an issuer.
    """

    tokens: TokenStore | None = None
    allow_anonymous: bool = False
    hosts: Sequence[str] | None = None
    oidc: OidcVerifier | None = None

    async def find_caller(self, headers: Mapping[str, str]) -> Caller | None:
        """Return the caller by the request headers (lower-case names), None if not authenticated.

        Raises HTTPException: 503 while tokens cannot be checked, 403 for a token of the issuer that
        grants no scope.
        """
        try:
            caller = authenticate(headers, self.tokens, allow_anonymous=self.allow_anonymous)
        except MisconfiguredError as error:
            log.error("tokens cannot be read", reason=str(error))
            raise HTTPException(503, "tokens cannot be checked now; try again") from None
        if caller is None and self.oidc is not None:
            caller = await self.oidc.authenticate(get_bearer(headers))
        return caller


class PageAccess(Protocol):
    """Authentication of pages for browsers, which send a cookie instead of a header."""

    def covers(self, path: str) -> bool:
        """Return whether a path is one of these pages."""
        ...

    def is_public(self, path: str) -> bool:
        """Return whether a page needs no token, such as the page to log in."""
        ...

    async def get_bearer(self, headers: Mapping[str, str]) -> str:
        """Return the bearer token in the cookie of a request, or "".

        Raises HTTPException (503) while it cannot be checked.
        """
        ...

    def refuse(self, scope: Scope, error: HTTPException) -> Response:
        """Return the response to a request that was refused."""
        ...


class AccessMiddleware:
    """ASGI middleware that checks every HTTP request, and answers refused requests itself.

    pages: authentication of pages by cookie, None without pages.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: AccessRules,
        settings: GatewaySettings,
        audit_log: AuditLog | None = None,
        pages: PageAccess | None = None,
    ) -> None:
        self._app = app
        self._audit_log = audit_log
        self._pages = pages
        self._access = access
        self._settings = settings
        self._requests = RateLimiter(settings.requests_a_minute, settings.burst)
        self._deliveries = RateLimiter(settings.deliveries_a_minute, settings.delivery_burst)
        self._hosts = None if access.hosts is None else {name.lower() for name in access.hosts}
        self._origins = settings.origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with a problem."""
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        with start_request_span(scope, headers, trusted=self._access.tokens is None) as span:
            await self._answer(scope, headers, receive, send, span)

    async def _answer(
        self, scope: Scope, headers: Headers, receive: Receive, send: Send, span: Span
    ) -> None:
        given = headers.get("x-request-id", "")
        is_named = _REQUEST_ID.fullmatch(given) is not None
        request_id = given if is_named else span.trace_id or uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        response = ResponseSender(send, request_id)
        with structlog.contextvars.bound_contextvars(trace_id=span.trace_id or request_id):
            started = time.perf_counter()
            try:
                await self._check_request(scope, headers)
                response.recorder = self._create_recorder(scope, headers)
                body = BoundedBody(receive, self._settings) if _is_bounded(scope) else receive
                await self._run(scope, headers, body, response)
                if _is_delivery(scope) and 200 <= response.status < 300:
                    self._deliveries.refund(_get_bucket_key(scope))
            except HTTPException as error:
                await self._refuse(scope, error)(scope, receive, response)
            finally:
                await response.end()
                end_request_span(span, scope, response.status)
                _log_request(scope, response, time.perf_counter() - started, span)

    async def _run(
        self, scope: Scope, headers: Headers, receive: Receive, response: ResponseSender
    ) -> None:
        """Run the application as long as the caller has access."""
        if self._access.tokens is None:
            await self._app(scope, receive, response)
            return

        refusal = _unauthorized(_LOST_ACCESS)

        async def has_access() -> bool:
            nonlocal refusal
            try:
                caller = await self._authenticate(scope["path"], headers)
            except HTTPException as error:
                refusal = error if error.status_code == 503 else refusal
                return False
            return bool(caller == scope["state"]["caller"])

        async with AccessWatch(has_access, response.is_change, receive, response) as watch:
            await self._app(scope, watch.receive, watch.send)
        if watch.is_lost and not response.is_complete:
            if not response.status:
                raise refusal
            await response({"type": "http.response.body", "body": b""})

    def _refuse(self, scope: Scope, error: HTTPException) -> Response:
        if self._pages is not None and self._pages.covers(scope["path"]):
            return self._pages.refuse(scope, error)
        return problem_response(Request(scope), error.status_code, str(error.detail), error.headers)

    def _create_recorder(self, scope: Scope, headers: Headers) -> RequestRecorder | None:
        """Return the recorder of a request; None if its sender, a command on
        this machine, records it.

        Raises HTTPException (503) if a change could not be recorded.
        """
        is_local = self._access.tokens is None
        if self._audit_log is None or (is_local and RECORDED_HEADER in headers):
            return None
        recorder = RequestRecorder(self._audit_log, scope, scope["state"]["caller"].name)
        try:
            recorder.check()
        except MisconfiguredError as error:
            log.error("changes cannot be recorded", reason=str(error))
            raise HTTPException(503, "changes cannot be recorded now; try again") from None
        return recorder

    async def _check_request(self, scope: Scope, headers: Headers) -> None:
        """Check the head of a request and note its caller; raises HTTPException to refuse it."""
        if scope["state"].get(OVERLOADED) and scope["path"] not in PUBLIC_PATHS:
            limit = self._settings.connections
            raise HTTPException(
                503,
                f"more than {limit} connections are open (gateway.connections); try again later",
                {"Connection": "close"},
            )
        if "content-length" in headers and "transfer-encoding" in headers:
            # Request smuggling: a proxy in front may see the end of this request elsewhere.
            detail = "content-length and transfer-encoding: send only one of them"
            raise HTTPException(400, detail, {"Connection": "close"})
        self._check_host(headers)
        self._check_origin(headers)
        caller = await self._authenticate(scope["path"], headers)
        scope["state"]["caller"] = caller
        if self._access.tokens is not None and scope["path"] not in PUBLIC_PATHS:
            self._check_rate(scope)
        if _is_bounded(scope):
            check_content_length(headers, self._settings)

    def _check_rate(self, scope: Scope) -> None:
        """Count a request; raises HTTPException (429) above the limit.

        Webhook deliveries have a separate limit. An accepted delivery is refunded afterwards, so
        that only forged, invalid and repeated deliveries count, however many a host sends.
        """
        if _is_delivery(scope):
            limiter, what, setting = self._deliveries, "deliveries", "deliveries_a_minute"
        else:
            limiter, what, setting = self._requests, "requests", "requests_a_minute"
        seconds = limiter.acquire(_get_bucket_key(scope))
        if seconds > 0:
            raise HTTPException(
                429,
                f"more than {limiter.per_minute:g} {what} a minute (gateway.{setting}); "
                "try again later",
                {"Retry-After": str(int(seconds) + 1)},
            )

    def _check_host(self, headers: Headers) -> None:
        if self._hosts is None:
            return
        named = headers.getlist("host")
        host = _HOST.fullmatch(named[0].lower()) if len(named) == 1 else None
        if host is None or host[1] not in self._hosts:
            raise HTTPException(
                421, "the Host header names a host that is not accepted; add it to gateway.hosts"
            )

    def _check_origin(self, headers: Headers) -> None:
        """Refuse web pages of other origins, which could use a browser on this machine."""
        origin = headers.get("origin")
        if origin is None or self._access.tokens is None:
            return
        if origin.lower() in self._origins:
            return
        if origin != "null" and _parse_host(origin) == headers.get("host", "").lower():
            return
        raise HTTPException(
            403, "web pages of this origin may not send requests; see gateway.origins"
        )

    async def _authenticate(self, path: str, headers: Mapping[str, str]) -> Caller:
        if self._access.tokens is not None and self._is_public(path):
            return ANONYMOUS_CALLER
        headers = await self._add_session(path, headers)
        caller = await self._access.find_caller(headers)
        if caller is None:
            known = "authorization" in headers
            raise _unauthorized(_UNKNOWN if known else "no token: send `Authorization: Bearer …`")
        return caller

    def _is_public(self, path: str) -> bool:
        if path in PUBLIC_PATHS or path.startswith((_WEBHOOK_PREFIX, *WELL_KNOWN_PREFIXES)):
            return True
        pages = self._pages
        return pages is not None and pages.covers(path) and pages.is_public(path)

    async def _add_session(self, path: str, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return the headers of a page's request, with the token of its
        cookie as `Authorization`."""
        pages = self._pages
        if pages is None or not pages.covers(path) or "authorization" in headers:
            return headers
        secret = await pages.get_bearer(headers)
        return {"authorization": f"Bearer {secret}"} if secret else headers


def _unauthorized(why: str) -> HTTPException:
    return HTTPException(401, why, {"WWW-Authenticate": 'Bearer realm="skillbus"'})


def _parse_host(origin: str) -> str:
    """Return host and port of an origin, "" if it is malformed."""
    try:
        return urlsplit(origin.lower()).netloc
    except ValueError:
        return ""


def _get_bucket_key(scope: Scope) -> str:
    """Return the name of the rate limit bucket of a request.

    There is a bucket per token; without a token per client network, and for deliveries also per
    repository host. No caller can therefore use up the requests of another.
    """
    caller: Caller = scope["state"]["caller"]
    if caller.name != ANONYMOUS:
        return caller.name
    what = ANONYMOUS
    if _is_delivery(scope):
        what = scope["path"] if scope["path"] in _WEBHOOK_PATHS else _WEBHOOK_PREFIX
    return f"{what} {get_client_network(scope)}"


def _is_delivery(scope: Scope) -> bool:
    """Return whether a request is a webhook delivery, which is signed and needs no token."""
    path: str = scope["path"]
    return path.startswith(_WEBHOOK_PREFIX)


def _is_bounded(scope: Scope) -> bool:
    """Return whether the body is bounded here; uploads and webhooks bound theirs in the route."""
    return (scope["method"], scope["path"]) != _UPLOAD_ROUTE and not _is_delivery(scope)


def _log_request(scope: Scope, response: ResponseSender, seconds: float, span: Span) -> None:
    """Log one line per request. Of the request's content only the
    percent-encoded path is logged."""
    caller = scope["state"].get("caller")
    extra = {"location": response.location} if response.location else {}
    if span.trace_id not in ("", response.request_id):
        extra["request_id"] = response.request_id
    log.info(
        "request",
        method=scope["method"],
        path=scope.get("raw_path", b"").decode("ascii", "replace")[:200],
        status=response.status,
        seconds=round(seconds, 4),
        caller="" if caller is None else caller.name,
        **extra,
    )
