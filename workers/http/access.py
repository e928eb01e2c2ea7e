"""What every request passes before any route sees it, and every answer on its way out.

A request gets an id; it must name this gateway as its host and come from no foreign web page; on a
port it needs a token, and no token may ask too often; a body is taken in within a size and a time.
"""

from __future__ import annotations

import ipaddress
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlsplit

import structlog
from fastapi import Depends, Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from config.errors import MisconfiguredError
from config.inbound_settings import GatewaySettings
from workers.http.problems import problem_response
from workers.http.rate_limits import RateLimiter
from workers.http.request_bodies import BoundedBody, check_content_length
from workers.http.slow_clients import OVERLOADED
from workers.http.tokens import ANONYMOUS, TokenScope, TokenStore

log = structlog.get_logger()

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")

_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PUBLIC_PATHS = ("/healthz", "/readyz")
"""Paths for which nobody needs a token."""
_UPLOAD_ROUTE = ("POST", "/v1/skills")
_WEBHOOK_PREFIX = "/v1/webhooks/"
"""Paths below which a signature stands for a token."""
_HOST_PREFIX_LENGTH = len(_WEBHOOK_PREFIX) + 8
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: the name of a token, "" for the user of the home's socket; and what is allowed."""

    name: str
    scope: TokenScope

    def can_see(self, owner: str) -> bool:
        """Whether what `owner` has asked is this caller's to see."""
        return owner == self.name or self.scope is TokenScope.ADMIN


LOCAL_USER = Caller("", TokenScope.ADMIN)
"""The user, on the home's socket."""


@dataclass(frozen=True, slots=True)
class AccessRules:
    """Who may send requests.

    tokens: None on the home's socket, which is the user's own. allow_anonymous: whether a token is
    optional while there is no file of tokens. hosts: names of this gateway, None for any.
    """

    tokens: TokenStore | None = None
    allow_anonymous: bool = False
    hosts: Sequence[str] | None = None


def get_caller(request: Request) -> Caller:
    """Who asks, as the door has found out."""
    caller: Caller = request.state.caller
    return caller


CurrentCaller = Annotated[Caller, Depends(get_caller)]


@dataclass(frozen=True, slots=True)
class RequiredScope:
    """A dependency that lets only callers with this scope pass."""

    scope: TokenScope

    def __call__(self, caller: CurrentCaller) -> None:
        """Raise HTTPException for any other."""
        check_scope(caller, self.scope)


def require_scope(scope: TokenScope) -> Any:
    """A dependency that lets only callers with this scope pass."""
    return Depends(RequiredScope(scope))


def check_scope(caller: Caller, scope: TokenScope) -> None:
    """Raise HTTPException unless a caller has this scope."""
    if caller.scope < scope:
        raise HTTPException(
            403,
            f"this needs a token of scope {scope.name.lower()}, and yours is for "
            f"{caller.scope.name.lower()}",
        )


class AccessMiddleware:
    """The outermost layer of a gateway (ASGI)."""

    def __init__(self, app: ASGIApp, access: AccessRules, settings: GatewaySettings) -> None:
        self._app = app
        self._access = access
        self._settings = settings
        self._buckets = RateLimiter(settings.requests_a_minute, settings.burst)
        self._deliveries = RateLimiter(settings.deliveries_a_minute, settings.delivery_burst)
        self._hosts = None if access.hosts is None else {name.lower() for name in access.hosts}
        self._origins = {origin.lower().rstrip("/") for origin in settings.origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        answer = _ResponseSender(send, request_id)
        with structlog.contextvars.bound_contextvars(trace_id=request_id):
            started = time.perf_counter()
            try:
                self._check_request(scope, headers)
                body = BoundedBody(receive, self._settings) if _is_bounded(scope) else receive
                await self._app(scope, body, answer)
                if _is_delivery(scope) and 200 <= answer.status < 300:
                    self._deliveries.refund(_get_bucket_key(scope))
            except HTTPException as error:
                refusal = problem_response(
                    scope, error.status_code, str(error.detail), error.headers
                )
                await refusal(scope, receive, answer)
            finally:
                _log_request(scope, answer, time.perf_counter() - started)

    def _check_request(self, scope: Scope, headers: Headers) -> None:
        """Say who asks; raises HTTPException for whom nothing is done."""
        if scope["state"].get(OVERLOADED) and scope["path"] not in _PUBLIC_PATHS:
            most = self._settings.connections
            raise HTTPException(
                503,
                f"more than {most} connections are open (gateway.connections); try again later",
                {"Connection": "close"},
            )
        if "content-length" in headers and "transfer-encoding" in headers:
            # A proxy in front may see another end of this request, and a second one behind it.
            detail = "content-length and transfer-encoding: send one of them"
            raise HTTPException(400, detail, {"Connection": "close"})
        self._check_host(headers)
        self._check_origin(headers)
        caller = self._authenticate(scope["path"], headers)
        scope["state"]["caller"] = caller
        if self._access.tokens is not None and scope["path"] not in _PUBLIC_PATHS:
            self._check_rate(scope)
        if _is_bounded(scope):
            check_content_length(headers, self._settings)

    def _check_rate(self, scope: Scope) -> None:
        """Count a request; raises HTTPException for one too many.

        Deliveries have buckets of their own, and those that are taken in are given back: however
        many a host sends, only what is forged, wrong or sent again is counted.
        """
        if _is_delivery(scope):
            buckets, what, setting = self._deliveries, "deliveries", "deliveries_a_minute"
        else:
            buckets, what, setting = self._buckets, "requests", "requests_a_minute"
        seconds = buckets.acquire(_get_bucket_key(scope))
        if seconds > 0:
            raise HTTPException(
                429,
                f"more than {buckets.per_minute:g} {what} a minute (gateway.{setting}); "
                "try again later",
                {"Retry-After": str(int(seconds) + 1)},
            )

    def _check_host(self, headers: Headers) -> None:
        if self._hosts is None:
            return
        named = headers.getlist("host")
        host = named[0].lower() if len(named) == 1 else ""
        name = host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host
        if (name if name.startswith("[") else host.partition(":")[0]) not in self._hosts:
            raise HTTPException(
                421, "this gateway goes by another name; gateway.hosts lists the names it has"
            )

    def _check_origin(self, headers: Headers) -> None:
        """Refuse foreign web pages: a browser that is on this machine can be made to call."""
        origin = headers.get("origin")
        if origin is None or self._access.tokens is None:
            return
        if origin.lower() in self._origins:
            return
        if origin != "null" and _parse_host(origin) == headers.get("host", "").lower():
            return
        raise HTTPException(403, "web pages of this origin may not call; see gateway.origins")

    def _authenticate(self, path: str, headers: Headers) -> Caller:
        if self._access.tokens is not None and (
            path in _PUBLIC_PATHS or path.startswith(_WEBHOOK_PREFIX)
        ):
            return Caller(ANONYMOUS, TokenScope.READ)
        try:
            caller = authenticate(self._access, headers)
        except MisconfiguredError as error:
            log.error("tokens cannot be read", reason=str(error))
            raise HTTPException(503, "tokens cannot be checked at the moment") from None
        if caller is None:
            known = "authorization" in headers
            why = "this token is not known, or over" if known else "send `Authorization: Bearer …`"
            raise HTTPException(401, why, {"WWW-Authenticate": 'Bearer realm="skillbus"'})
        return caller


def authenticate(access: AccessRules, headers: Mapping[str, str]) -> Caller | None:
    """Who asks, by headers (names in lower case); None for whom nothing is done.

    Raises SetupError when the tokens cannot be read.
    """
    if access.tokens is None:
        return LOCAL_USER
    given = headers.get("authorization")
    if given is None:
        is_open = access.allow_anonymous and not access.tokens.are_configured()
        return Caller(ANONYMOUS, TokenScope.READ) if is_open else None
    kind, _, secret = given.partition(" ")
    found = access.tokens.find(secret.strip()) if kind.lower() == "bearer" else None
    return None if found is None else Caller(found.name, found.granted_scope)


def _parse_host(origin: str) -> str:
    """Host and port of an origin, "" for none."""
    try:
        return urlsplit(origin.lower()).netloc
    except ValueError:
        return ""


def _get_bucket_key(scope: Scope) -> str:
    """Who shares a limit: a token's own, or all of one address, for each host of deliveries. Nobody
    can keep others out."""
    caller: Caller = scope["state"]["caller"]
    if caller.name != ANONYMOUS:
        return caller.name
    what = scope["path"][:_HOST_PREFIX_LENGTH] if _is_delivery(scope) else ANONYMOUS
    return f"{what} {get_client_network(scope)}"


def get_client_network(scope: Scope) -> str:
    """The address that a request comes from; of IPv6 its network: whoever has one has all of it."""
    host: str = (scope.get("client") or ("",))[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 6:
        return str(ipaddress.ip_network((address, 64), strict=False).network_address)
    return str(address)


def _is_delivery(scope: Scope) -> bool:
    """Whether a request comes from a repository host, whose signature stands for a token."""
    path: str = scope["path"]
    return path.startswith(_WEBHOOK_PREFIX)


def _is_bounded(scope: Scope) -> bool:
    """Whether the body is bounded here: uploads and webhooks have bounds of their own."""
    return (scope["method"], scope["path"]) != _UPLOAD_ROUTE and not _is_delivery(scope)


class _ResponseSender:
    """Adds what every answer carries, and remembers its status."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id
        self.status = 0
        self.location = ""

    async def __call__(self, message: Message) -> None:
        """Send a message on."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = self._request_id
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            self.location = headers.get("location", "")
        await self._send(message)


def _log_request(scope: Scope, answer: _ResponseSender, seconds: float) -> None:
    """One line a request. Of what came from outside it holds only the path, still encoded."""
    caller = scope["state"].get("caller")
    extra = {"location": answer.location} if answer.location else {}
    log.info(
        "request",
        method=scope["method"],
        path=scope.get("raw_path", b"").decode("ascii", "replace")[:200],
        status=answer.status,
        seconds=round(seconds, 4),
        caller="" if caller is None else caller.name,
        **extra,
    )
