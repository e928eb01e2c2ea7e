"""Jobs of the journal, as their owners may see them."""

from __future__ import annotations

from config.errors import NotFoundError
from tasks.journal import Job, Kind
from workers.channel import Channel
from workers.gateway.door import Caller


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
