"""What becomes of a delivery: verified, read, and recorded as one event for each source.

The id of such an event is made from what the host signed. The journal keeps ids for
`workers.journal_days` after the work is done, in every process and over restarts, so it is what
recognises a delivery that comes again. What is older than that is refused by its date, where the
host tells one.
"""

from __future__ import annotations

import hashlib
import time
from typing import Literal

import structlog
from pydantic import BaseModel, ConfigDict

from skills.events import Pushed, SourceChanged, new_event
from workers.backend.channel import Channel
from workers.webhooks.delivery import Delivery, DeliveryError
from workers.webhooks.payloads import PING, Push, read_notice
from workers.webhooks.secrets import read_secrets
from workers.webhooks.signatures import Proof, verify
from workers.webhooks.sources import Followed, heard

log = structlog.get_logger()

_DAY = 86_400.0
_AHEAD_SECONDS = 3_600.0


class Receipt(BaseModel):
    """What became of a delivery. ids: of the events it led to. reason: why there are none."""

    model_config = ConfigDict(frozen=True)

    state: Literal["accepted", "ignored", "pong"]
    ids: tuple[str, ...] = ()
    reason: str = ""


def receive(channel: Channel, delivery: Delivery) -> Receipt:
    """Take a delivery in; its events are recorded when this returns.

    Raises DeliveryError with the HTTP status of the answer, SetupError when a secret cannot be
    read, TransientError when too many events wait or a store is busy.
    """
    settings = channel.settings
    secrets = read_secrets(settings.webhooks, delivery.host)
    if not secrets:
        raise DeliveryError(
            404, f"no webhooks of {delivery.host} are taken here: [webhooks] names no secret for it"
        )
    proof = verify(delivery, secrets)
    _check_age(proof.sent, settings.webhooks.age_seconds, settings.webhooks.age_seconds)
    notice = read_notice(delivery)
    sources = heard(channel.graph.sources(), settings.webhooks, proof.sources, notice)
    if notice.event == PING:
        return Receipt(state="pong", reason=_greeting(sources))
    if notice.push is None:
        return Receipt(state="ignored", reason=f"{notice.event}: only pushes change a source")
    _check_age(notice.push.pushed, settings.workers.journal_days * _DAY, _AHEAD_SECONDS)
    if not sources:
        raise DeliveryError(
            403, "no git source follows this repository, or its secret counts for another one"
        )
    taking = [one for one in sources if one.takes(notice)]
    if not taking:
        return Receipt(state="ignored", reason=f"no source follows {notice.push.ref[:200]!r}")
    return _record(channel, delivery, proof, notice.push, taking)


def _record(
    channel: Channel, delivery: Delivery, proof: Proof, push: Push, taking: list[Followed]
) -> Receipt:
    ids, is_new = [], False
    pushed = Pushed(before=push.before, after=push.after) if push.after else None
    for one in taking:
        changed = SourceChanged(source_id=one.source_id, pushed=pushed)
        event = new_event(changed, f"skillbus/webhooks/{delivery.host}").model_copy(
            update={"id": _event_id(delivery.host, proof, one.source_id)}
        )
        is_new |= channel.accept_once(event)
        ids.append(event.id)
    if not is_new:
        raise DeliveryError(
            409,
            f"this delivery was here before, as {ids[0]}; "
            f"`skillbus sources refresh {taking[0].source_id}` fetches once more",
        )
    log.info(
        "webhook",
        host=delivery.host,
        delivery=delivery.id,
        before=push.before,
        after=push.after,
        event_ids=ids,
    )
    return Receipt(state="accepted", ids=tuple(ids))


def _event_id(host: str, proof: Proof, source_id: str) -> str:
    signed = "\0".join((host, proof.identity, source_id))
    return hashlib.sha256(signed.encode()).hexdigest()[:32]


def _check_age(sent: float | None, oldest: float, newest: float) -> None:
    """Raise DeliveryError for what was sent too long ago, or is dated in the future; seconds."""
    if sent is None:
        return
    age = time.time() - sent
    if not -newest <= age <= oldest:
        when = f"{age:.0f} s ago" if age > 0 else f"in {-age:.0f} s"
        raise DeliveryError(401, f"sent {when}: too old, or the clocks of both sides differ")


def _greeting(sources: list[Followed]) -> str:
    if not sources:
        return "no git source follows this repository yet; its pushes will be refused"
    return f"followed by {', '.join(sorted(one.source_id for one in sources))}"
