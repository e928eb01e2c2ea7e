"""Jobs of the journal, as they are accepted, and as their owners may see them."""

from __future__ import annotations

from fastapi import Response
from pydantic import BaseModel, ConfigDict

from config.errors import NotFoundError
from skills.events import Data
from tasks.journal.protocol import Job, Kind
from workers.backend.channel import Channel
from workers.http.access import Caller
from workers.http.idempotency import accept


class Accepted(BaseModel):
    """A query or event that is on disk and will be worked on."""

    model_config = ConfigDict(frozen=True)

    id: str


def accept_event(
    channel: Channel, caller: Caller, data: Data, key: str | None, response: Response
) -> Accepted:
    """Accept an event as `accept` does, and tell in a response where its state is told."""
    event_id = accept(channel, caller, data, key)
    response.headers["Location"] = f"/v1/events/{event_id}"
    return Accepted(id=event_id)


def job_of(channel: Channel, caller: Caller, job_id: str, kind: Kind) -> Job:
    """A job that a caller may see.

    Raises NotFoundError for any other: whether there is one of somebody else's is not told.
    """
    try:
        job = channel.journal.job(job_id)
    except NotFoundError:
        job = None
    if job is None or job.kind != kind or not caller.may_see(job.event.owner):
        raise NotFoundError(f"no {kind} with id {job_id!r}")
    return job
