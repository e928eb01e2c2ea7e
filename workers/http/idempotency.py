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
from skills.events import (
    GATEWAY_SOURCE,
    Event,
    EventData,
    describe_validation_error,
    new_event,
    replace_origin,
)
from tasks.journal.protocol import job_id
from workers.backend.store_backend import StoreBackend
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


def record_job(backend: StoreBackend, caller: Caller, data: EventData, key: str | None) -> str:
    """Accept an event or a query of a caller, on disk when this returns its id.

    Raises HTTPException for a key that came with something else before, and for text that is none
    (half a surrogate pair, which JSON lets pass).
    """
    try:
        event = replace_origin(new_event(data, GATEWAY_SOURCE), caller.name)
    except ValidationError as error:
        raise HTTPException(422, describe_validation_error(error)) from None
    if key is not None:
        event = event.model_copy(update={"id": derive_job_id(caller, key)})
    if not backend.accept_if_new(event):
        _check_same_request(backend, event)
    return job_id(event)


def derive_job_id(caller: Caller, key: str) -> str:
    """The id, 32 hex digits, that a caller's key stands for."""
    return hashlib.sha256(f"idempotency\0{caller.name}\0{key}".encode()).hexdigest()[:32]


def find_earlier_event(backend: StoreBackend, event_id: str) -> Event | None:
    """The event that came under an id, None when none did."""
    try:
        return backend.journal.get_job(event_id).event
    except NotFoundError:
        return None


def key_reuse_error() -> HTTPException:
    """The refusal of a key that came with something else before."""
    return HTTPException(
        422, "this Idempotency-Key came with another request before; take a new key"
    )


def _check_same_request(backend: StoreBackend, event: Event) -> None:
    before = backend.journal.get_job(job_id(event)).event
    if (before.type, before.data) != (event.type, event.data):
        raise key_reuse_error()
