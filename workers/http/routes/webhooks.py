"""Webhooks of repository hosts: `POST /v1/webhooks/{host}`.

This module bounds the body's size and duration and maps errors to HTTP; `workers.webhooks` checks
the signature and processes the delivery.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Path, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from config.errors import MisconfiguredError
from config.inbound_settings import WebhookSettings
from workers.audit.requests import note_object
from workers.backend.store_backend import StoreBackend
from workers.http.limits.rate_limits import FairSemaphore, get_client_network
from workers.http.limits.request_bodies import parse_content_length
from workers.webhooks.delivery import HOSTS, Delivery, DeliveryError
from workers.webhooks.handler import Receipt, handle_delivery
from workers.webhooks.secrets import check_secrets
from workers.webhooks.sources import check_repositories

log = structlog.get_logger()

_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"model": Receipt, "description": "Nothing to do, with the reason"},
    400: {"description": "No event name, no id, or an incomplete body"},
    401: {"description": "Not signed with a known secret, or too old"},
    403: {"description": "No git source follows the repository"},
    404: {"description": "Unknown host, or no secret for it"},
    408: {"description": "The body took too long"},
    409: {"description": "The delivery was received before"},
    413: {"description": "The body is too large"},
    415: {"description": "A content type that no host sends"},
    422: {"description": "Content that cannot be parsed"},
    429: {"description": "Too many refused deliveries"},
    503: {"description": "Busy, or a secret cannot be read: try again"},
}
_QUEUE_TIMEOUT_SECONDS = 5.0
"""Time that a delivery waits for a slot; hosts wait 10 seconds for the response."""
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
    Path(
        description="the repository host",
        json_schema_extra={"enum": sorted(HOSTS)},
        examples=["gitea"],
    ),
]


def webhook_routes(backend: StoreBackend) -> APIRouter:
    """Return the route of webhooks, which needs no token since deliveries are signed.

    Raises MisconfiguredError for an unreadable secret, UsageError for an entry of
    `webhooks.repositories` that is not an address.
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
        """Receive a delivery of `github`, `gitlab`, `gitea` or `forgejo`: a push to a branch that a
        git source follows becomes an event of that source."""
        if host not in HOSTS:
            raise HTTPException(404, f"unknown host; known: {', '.join(HOSTS)}")
        _check_headers(request, settings)
        try:
            async with slots.slot(get_client_network(request.scope), _QUEUE_TIMEOUT_SECONDS):
                body = await _read_body(request, settings)
                headers = {name.lower(): value for name, value in reversed(request.headers.items())}
                delivery = Delivery(HOSTS[host], headers, body)
                receipt = await run_in_threadpool(_handle, backend, delivery)
        except TimeoutError:
            detail = "too many deliveries at once; try again"
            raise HTTPException(503, detail, _BUSY | _CLOSE) from None
        if receipt.state == "accepted":
            note_object(request, " ".join(receipt.sources))
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
        # The response does not disclose the path of the secret.
        log.error("webhook not checked", host=delivery.host, reason=str(error))
        raise HTTPException(503, "a secret of this host cannot be read", _BUSY) from None


def _check_headers(request: Request, settings: WebhookSettings) -> None:
    """Raise HTTPException for a body that is encoded or too large by its headers."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise HTTPException(415, "content encoding: send the body unencoded", _CLOSE)
    if parse_content_length(request.headers, _CLOSE) > settings.body_bytes:
        raise _too_large(settings)


async def _read_body(request: Request, settings: WebhookSettings) -> bytes:
    """Return the body; raises HTTPException if it is too large, too slow or incomplete."""
    body = bytearray()
    try:
        async with asyncio.timeout(settings.body_seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > settings.body_bytes:
                    raise _too_large(settings)
    except TimeoutError:
        detail = f"the body is incomplete after {settings.body_seconds:g} s (webhooks.body_seconds)"
        raise HTTPException(408, detail, _CLOSE) from None
    return bytes(body)


def _too_large(settings: WebhookSettings) -> HTTPException:
    detail = f"more than {settings.body_bytes} bytes (webhooks.body_bytes)"
    return HTTPException(413, detail, _CLOSE)
