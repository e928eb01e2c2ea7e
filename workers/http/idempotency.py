"""Requests that may be sent twice: the same key from the same token is the same job.

The key becomes the job's id, so that the journal, which takes every id once, keeps it.
"""

from __future__ import annotations

import hashlib
from typing import Annotated

from fastapi import Header
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from config.errors import NotFoundError
from skills.events import GATEWAY, Data, Event, describe, new_event, with_origin
from tasks.journal.protocol import job_id
from workers.backend.channel import Channel
from workers.http.access import Caller

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[\x21-\x7e]{1,200}$",
        description="the same key with the same body is the same job, as long as the journal "
        "remembers it",
    ),
]


def accept(channel: Channel, caller: Caller, data: Data, key: str | None) -> str:
    """Accept an event or a query of a caller, on disk when this returns its id.

    Raises HTTPException for a key that came with something else before, and for text that is none
    (half a surrogate pair, which JSON lets pass).
    """
    try:
        event = with_origin(new_event(data, GATEWAY), caller.name)
    except ValidationError as error:
        raise HTTPException(422, describe(error)) from None
    if key is not None:
        event = event.model_copy(update={"id": job_of_key(caller, key)})
    if not channel.accept_once(event):
        _check_same(channel, event)
    return job_id(event)


def job_of_key(caller: Caller, key: str) -> str:
    """The id, 32 hex digits, that a caller's key stands for."""
    return hashlib.sha256(f"idempotency\0{caller.name}\0{key}".encode()).hexdigest()[:32]


def sent_before(channel: Channel, event_id: str) -> Event | None:
    """The event that came under an id, None when none did."""
    try:
        return channel.journal.job(event_id).event
    except NotFoundError:
        return None


def other_request() -> HTTPException:
    """The refusal of a key that came with something else before."""
    return HTTPException(
        422, "this Idempotency-Key came with another request before; take a new key"
    )


def _check_same(channel: Channel, event: Event) -> None:
    before = channel.journal.job(job_id(event)).event
    if (before.type, before.data) != (event.type, event.data):
        raise other_request()
