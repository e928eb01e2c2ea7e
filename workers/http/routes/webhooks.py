"""The way in for repository hosts: `POST /v1/webhooks/{host}`.

The body is taken in within a size and a time, before anything is known of who sends it; all that
follows is in `workers.webhooks`.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Path, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from config.errors import MisconfiguredError
from config.inbound_settings import WebhookSettings
from workers.backend.store_backend import StoreBackend
from workers.http.access import get_client_network
from workers.http.rate_limits import FairSemaphore
from workers.http.request_bodies import parse_content_length
from workers.webhooks.delivery import HOSTS, Delivery, DeliveryError
from workers.webhooks.handler import Receipt, handle_delivery
from workers.webhooks.secrets import check_secrets
from workers.webhooks.sources import check_repositories

log = structlog.get_logger()

_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"model": Receipt, "description": "Nothing to do, and why"},
    400: {"description": "No kind of event, no id, or a body that broke off"},
    401: {"description": "Not signed with a secret that is known here, or too old"},
    403: {"description": "No git source follows the repository"},
    404: {"description": "No such host, or no secret for it"},
    408: {"description": "The body took too long"},
    409: {"description": "The delivery was here before"},
    413: {"description": "The body is too large"},
    415: {"description": "A content type that hosts do not send"},
    422: {"description": "Content that cannot be read"},
    429: {"description": "Too many that were not taken in"},
    503: {"description": "Busy, or a secret cannot be read: try again"},
}
_QUEUE_TIMEOUT_SECONDS = 5.0
"""In which a delivery comes to its turn: hosts wait for 10 seconds in all."""
_CLOSE = {"Connection": "close"}
_BUSY = {"Retry-After": "5"}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "application/x-www-form-urlencoded": {
                "schema": {
                    "type": "object",
                    "required": ["payload"],
                    "properties": {"payload": {"type": "string"}},
                }
            },
        },
    }
}

Host = Annotated[
    str,
    Path(description="who sends", json_schema_extra={"enum": sorted(HOSTS)}, examples=["gitea"]),
]


def webhook_routes(backend: StoreBackend) -> APIRouter:
    """The routes of webhooks over an open channel.

    They ask for no token: a delivery carries a signature instead. Raises UsageError for a secret
    that cannot be read, or a repository of the settings that is no address.
    """
    settings = backend.settings.webhooks
    check_secrets(settings)
    check_repositories(settings)
    router = APIRouter(tags=["webhooks"])
    slots = FairSemaphore(settings.open_bodies)

    @router.post(
        "/v1/webhooks/{host}",
        status_code=202,
        responses=_RESPONSES,
        openapi_extra=_BODY,
    )
    async def deliver(host: Host, request: Request, response: Response) -> Receipt:
        """Take a delivery of `github`, `gitlab`, `gitea` or `forgejo`: a push to a branch that a
        git source follows becomes an event for that source."""
        if host not in HOSTS:
            raise HTTPException(404, f"no such host; known: {', '.join(HOSTS)}")
        _check_headers(request, settings)
        try:
            async with slots.slot(get_client_network(request.scope), _QUEUE_TIMEOUT_SECONDS):
                body = await _read_body(request, settings)
                headers = {name.lower(): value for name, value in reversed(request.headers.items())}
                delivery = Delivery(HOSTS[host], headers, body)
                receipt = await run_in_threadpool(_handle, backend, delivery)
        except TimeoutError:
            detail = "too many deliveries arrive at once; try again"
            raise HTTPException(503, detail, _BUSY | _CLOSE) from None
        if receipt.state != "accepted":
            response.status_code = 200
        elif len(receipt.ids) == 1:
            response.headers["Location"] = f"/v1/events/{receipt.ids[0]}"
        return receipt

    return router


def _handle(backend: StoreBackend, delivery: Delivery) -> Receipt:
    try:
        return handle_delivery(backend, delivery)
    except DeliveryError as error:
        log.warning(
            "webhook refused",
            host=delivery.host,
            delivery=delivery.id,
            status=error.status,
            reason=str(error),
        )
        raise HTTPException(error.status, str(error)) from None
    except MisconfiguredError as error:
        # Who sends is not told where secrets are kept.
        log.error("webhook not checked", host=delivery.host, reason=str(error))
        raise HTTPException(503, "a secret of this host cannot be read here", _BUSY) from None


def _check_headers(request: Request, settings: WebhookSettings) -> None:
    """Refuse by the headers alone what need not be read."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise HTTPException(415, "content encoding: send the body as it is", _CLOSE)
    if parse_content_length(request.headers, _CLOSE) > settings.body_bytes:
        raise _too_large(settings)


async def _read_body(request: Request, settings: WebhookSettings) -> bytes:
    """The body, however it comes; raises HTTPException for one that is too large or too slow."""
    body = bytearray()
    try:
        async with asyncio.timeout(settings.body_seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > settings.body_bytes:
                    raise _too_large(settings)
    except TimeoutError:
        detail = f"not all there after {settings.body_seconds:g} s (webhooks.body_seconds)"
        raise HTTPException(408, detail, _CLOSE) from None
    except ClientDisconnect:
        raise HTTPException(400, "the body broke off", _CLOSE) from None
    return bytes(body)


def _too_large(settings: WebhookSettings) -> HTTPException:
    detail = f"more than {settings.body_bytes} bytes (webhooks.body_bytes)"
    return HTTPException(413, detail, _CLOSE)
