"""Webhooks of repository hosts: `POST /v1/webhooks/{host}`.

This module bounds the body's size and duration and maps errors to HTTP; `workers.webhooks` checks
the signature and processes the delivery.
"""

from __future__ import annotations

from typing import Annotated, Any

import structlog
from fastapi import APIRouter, Path, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from config.errors import MisconfiguredError
from config.inbound_settings import WebhookSettings
from workers.audit.requests import note_object
from workers.backend.store_backend import StoreBackend
from workers.http.dependencies import CurrentBackend, from_state
from workers.http.limits.rate_limits import FairSemaphore, get_client_network
from workers.http.limits.request_bodies import BoundedBody, check_content_length
from workers.webhooks.delivery import HOSTS, Delivery, DeliveryError
from workers.webhooks.handler import Receipt, handle_delivery
from workers.webhooks.secrets import check_secrets
from workers.webhooks.sources import check_repositories

log = structlog.get_logger()

_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"model": Receipt, "description": "Nothing to do; the body has the reason"},
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


CurrentSlots = Annotated[FairSemaphore, from_state("delivery_slots")]

# Without a scope: deliveries are signed, and need no token.
router = APIRouter(tags=["webhooks"])


def check_webhooks(settings: WebhookSettings) -> None:
    """Raise MisconfiguredError for an unreadable secret, UsageError for an entry of
    `webhooks.repositories` that is not an address."""
    check_secrets(settings)
    check_repositories(settings)


@router.post("/v1/webhooks/{host}", status_code=202, responses=_RESPONSES, openapi_extra=_BODY)
async def deliver(
    backend: CurrentBackend, slots: CurrentSlots, host: Host, request: Request, response: Response
) -> Receipt:
    """Receive a delivery of `github`, `gitlab`, `gitea` or `forgejo`: a push to a branch that a
    git source follows becomes an event of that source."""
    if host not in HOSTS:
        raise HTTPException(404, f"unknown host; known: {', '.join(HOSTS)}")
    settings = backend.settings.webhooks
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise HTTPException(415, "content encoding: send the body unencoded", _CLOSE)
    check_content_length(request.headers, settings)
    try:
        async with slots.slot(get_client_network(request.scope), _QUEUE_TIMEOUT_SECONDS):
            body = await Request(request.scope, BoundedBody(request.receive, settings)).body()
            headers = {name.lower(): value for name, value in reversed(request.headers.items())}
            delivery = Delivery(HOSTS[host], headers, body)
            receipt = await run_in_threadpool(_handle, backend, delivery)
    except TimeoutError:
        detail = "too many deliveries at once; try again"
        raise HTTPException(503, detail, _BUSY | _CLOSE) from None
    if receipt.state != "accepted":
        response.status_code = 200
        return receipt
    note_object(request, " ".join(receipt.sources))
    if len(receipt.ids) == 1:
        response.headers["Location"] = f"/v1/events/{receipt.ids[0]}"
    return receipt


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
