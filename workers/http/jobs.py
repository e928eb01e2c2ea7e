"""Jobs over HTTP: accepted with 202 and a `Location`, readable by their owners only."""

from __future__ import annotations

from fastapi import Response
from pydantic import BaseModel, ConfigDict

from config.errors import NotFoundError
from skills.events import EventData
from tasks.journal.protocol import Job, JobKind
from workers.backend.store_backend import StoreBackend
from workers.http.authentication import Caller
from workers.http.idempotency import record_job


class Accepted(BaseModel):
    """A query or event that is recorded and will be processed."""

    model_config = ConfigDict(frozen=True)

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
