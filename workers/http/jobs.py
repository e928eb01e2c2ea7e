"""Jobs over HTTP: accepted with 202 and a `Location`, readable by their owners only.

Requests of one token with the same idempotency key are the same job: its id is derived from the
key, and the journal accepts every id once.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, NamedTuple

from fastapi import Header, Response
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
from tasks.journal.protocol import Job, JobKind, job_id
from workers.backend.store_backend import StoreBackend
from workers.http.authentication import Caller
from workers.http.models import ResponseModel

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[\x21-\x7e]{1,200}$",
        description="requests with the same key and body are one job, as long as the journal "
        "keeps it",
    ),
]


class RecordedJob(NamedTuple):
    """A job in the journal. is_new: False if an earlier request with the key recorded it."""

    id: str
    is_new: bool


def record_job(
    backend: StoreBackend,
    caller: Caller,
    data: EventData,
    key: str | None,
    seconds: float | None = None,
) -> RecordedJob:
    """Record an event or a query of a caller.

    seconds: time within which a query is to be answered [default: `workers.query_seconds`].
    Raises HTTPException (422) for a key that was used with another request, and for invalid text
    (a lone surrogate, which JSON allows).
    """
    try:
        event = replace_origin(new_event(data, GATEWAY_SOURCE), caller.name, caller.reader)
    except ValidationError as error:
        raise HTTPException(422, describe_validation_error(error)) from None
    if key is not None:
        event = event.model_copy(update={"id": derive_job_id(caller, key)})
    is_new = backend.accept_if_new(event, seconds)
    if not is_new:
        _check_same_request(backend, event)
    return RecordedJob(job_id(event), is_new)


def derive_job_id(caller: Caller, key: str) -> str:
    """Return the job id of a caller's key: 32 hexadecimal digits."""
    return hashlib.sha256(f"idempotency\0{caller.name}\0{key}".encode()).hexdigest()[:32]


def find_earlier_event(backend: StoreBackend, event_id: str) -> Event | None:
    """Return the recorded event of an id, None if there is none."""
    try:
        return backend.journal.get_job(event_id).event
    except NotFoundError:
        return None


def check_key(backend: StoreBackend, caller: Caller, data: EventData, key: str | None) -> None:
    """Raise HTTPException (422) for a key that was used with another event."""
    earlier = None if key is None else find_earlier_event(backend, derive_job_id(caller, key))
    if earlier is not None and earlier.parse_data() != data:
        raise key_reuse_error()


def key_reuse_error() -> HTTPException:
    """Return the error for a key that was used with another request."""
    return HTTPException(422, "this Idempotency-Key was used with another request; send a new key")


def _check_same_request(backend: StoreBackend, event: Event) -> None:
    before = backend.journal.get_job(job_id(event)).event
    if (before.type, before.data) != (event.type, event.data):
        raise key_reuse_error()


class Accepted(ResponseModel):
    """A query or event that is recorded and will be processed."""

    id: str


def accept_event(
    backend: StoreBackend, caller: Caller, data: EventData, key: str | None, response: Response
) -> Accepted:
    """Record an event with `record_job`, and set `Location` to the URL of its state."""
    event_id = record_job(backend, caller, data, key).id
    response.headers["Location"] = f"/v1/events/{event_id}"
    return Accepted(id=event_id)


def get_visible_job(
    backend: StoreBackend, caller: Caller, job_id: str, kind: JobKind, *others: JobKind
) -> Job:
    """Return a job of one of these kinds that the caller may see, even if this version cannot parse
    its event.

    Raises NotFoundError for any other id, so that other callers' jobs are not disclosed.
    """
    job = backend.journal.get_jobs([job_id]).get(job_id)
    if job is None or job.kind not in (kind, *others) or not caller.can_see(job.event.owner):
        raise NotFoundError(f"no {kind} with id {job_id!r}")
    return job
