"""Handler of deliveries: verifies a delivery and records an event for each source that it changes.

The event's id is derived from the signed data, and the journal accepts every id once. A repeated
delivery is therefore recognised, in every process and after a restart, for
`workers.journal_days`. Older deliveries are refused by their date, if the host sends one.
"""

from __future__ import annotations

import hashlib
import time
from typing import Literal

import structlog
from pydantic import BaseModel, ConfigDict, Field

from graph.records import Source
from skills.events import GitPush, SourceChanged, new_event
from workers.backend.store_backend import StoreBackend
from workers.webhooks.delivery import Delivery, DeliveryError
from workers.webhooks.payloads import PING, Push, parse_payload
from workers.webhooks.secrets import read_secrets
from workers.webhooks.signatures import Verification, verify_signature
from workers.webhooks.sources import find_followers, follows_branch

log = structlog.get_logger()

_DAY = 86_400.0
_CLOCK_SKEW_SECONDS = 3_600.0


class Receipt(BaseModel):
    """Result of a delivery. ids: of the recorded events. reason: why there are none."""

    model_config = ConfigDict(frozen=True)

    state: Literal["accepted", "ignored", "pong"]
    ids: tuple[str, ...] = ()
    reason: str = ""
    # Changed sources, for the audit log; not part of the response.
    sources: tuple[str, ...] = Field((), exclude=True)


def handle_delivery(backend: StoreBackend, delivery: Delivery) -> Receipt:
    """Verify a delivery and record its events.

    Raises DeliveryError for a refused delivery, MisconfiguredError if a secret cannot be read,
    TransientError if too many events wait or a store is busy.
    """
    settings = backend.settings
    secrets = read_secrets(settings.webhooks, delivery.host)
    if not secrets:
        raise DeliveryError(
            404, f"no webhooks of {delivery.host} are accepted: [webhooks] names no secret for it"
        )
    verification = verify_signature(delivery, secrets)
    _check_age(verification.sent_at, settings.webhooks.age_seconds, settings.webhooks.age_seconds)
    payload = parse_payload(delivery)
    sources = find_followers(
        backend.graph.list_sources(), settings.webhooks, verification.sources, payload
    )
    if payload.event == PING:
        return Receipt(state="pong", reason=_describe_followers(sources))
    if payload.push is None:
        return Receipt(state="ignored", reason=f"{payload.event}: only pushes change a source")
    _check_age(payload.push.pushed_at, settings.workers.journal_days * _DAY, _CLOCK_SKEW_SECONDS)
    if not sources:
        raise DeliveryError(
            403, "no git source follows this repository, or the secret is for another source"
        )
    matching = [one for one in sources if follows_branch(one, payload)]
    if not matching:
        return Receipt(state="ignored", reason=f"no source follows {payload.push.ref[:200]!r}")
    return _record(backend, delivery, verification, payload.push, matching)


def _record(
    backend: StoreBackend,
    delivery: Delivery,
    verification: Verification,
    push: Push,
    matching: list[Source],
) -> Receipt:
    ids, is_new = [], False
    pushed = GitPush(before=push.before, after=push.after) if push.after else None
    for one in matching:
        changed = SourceChanged(source_id=one.source_id, pushed=pushed)
        event = new_event(changed, f"skillbus/webhooks/{delivery.host}").model_copy(
            update={"id": _derive_event_id(delivery.host, verification, one.source_id)}
        )
        is_new |= backend.accept_if_new(event)
        ids.append(event.id)
    if not is_new:
        raise DeliveryError(
            409,
            f"this delivery was received before, as {ids[0]}; "
            f"`skillbus sources refresh {matching[0].source_id}` fetches again",
        )
    log.info(
        "webhook accepted",
        host=delivery.host,
        delivery=delivery.id,
        before=push.before,
        after=push.after,
        event_ids=ids,
    )
    return Receipt(
        state="accepted", ids=tuple(ids), sources=tuple(one.source_id for one in matching)
    )


def _derive_event_id(host: str, verification: Verification, source_id: str) -> str:
    signed = "\0".join((host, verification.replay_key, source_id))
    return hashlib.sha256(signed.encode()).hexdigest()[:32]


def _check_age(sent_at: float | None, max_age_seconds: float, max_skew_seconds: float) -> None:
    """Raise DeliveryError for a delivery that is too old or dated in the future."""
    if sent_at is None:
        return
    age = time.time() - sent_at
    if not -max_skew_seconds <= age <= max_age_seconds:
        when = f"{age:.0f} s ago" if age > 0 else f"in {-age:.0f} s"
        raise DeliveryError(401, f"sent {when}: too old, or the clocks differ")


def _describe_followers(sources: list[Source]) -> str:
    if not sources:
        return "no git source follows this repository yet; its pushes will be refused"
    return f"followed by {', '.join(sorted(one.source_id for one in sources))}"
