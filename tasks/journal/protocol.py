"""The journal: accepted events and queries with their outcome, and the letters nobody could serve.

What was acknowledged is in the journal before any task runs, so that neither a broker that forgets
nor a worker that dies loses it. Every implementation passes the contract suite under
`tests/contract`.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from skills.events import Event, get_trace_id

JobKind = Literal["event", "query"]

MAX_BODY_CHARACTERS = 16_384
"""Characters that are kept of a message nobody could read."""

MAX_DEAD_LETTERS = 10_000
"""Dead letters that are kept: who floods a queue with garbage must not fill the journal."""


@dataclass(frozen=True, slots=True)
class Job:
    """An accepted event or query and what became of it.

    state: `accepted`, `done`, `failed` or `cancelled`. accepted: seconds since the epoch by the
    journal's clock. seconds_left: until nobody wants the
    outcome any more, by the same clock when the job was read; None when it is wanted for ever.
    """

    id: str
    kind: str
    event: Event
    state: str
    outcome: dict[str, Any] | None
    reason: str
    accepted: float
    expires_in_seconds: float | None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A task that failed for good, or a message that was none.

    task, ids: what can be sent again; empty for a message that could not be read, whose `body`
    says what it was. attempts: how often it was begun. buried: seconds since the epoch.
    """

    id: str
    task: str
    ids: tuple[str, ...]
    reason: str
    attempts: int
    trace_id: str
    body: str
    buried: float


class Journal(Protocol):
    """Accepted jobs and dead letters, shared by the threads and processes of a deployment."""

    def add_job(self, event: Event, kind: JobKind, ttl_seconds: float | None = None) -> bool:
        """Record a job durably under `job_id(event)`; False when it was accepted before.

        seconds: how long its outcome is wanted.
        """
        ...

    def finish_job(self, job_id: str, outcome: dict[str, Any] | None = None) -> None:
        """Record success, once; a job that has ended is left as it is."""
        ...

    def fail_job(self, job_id: str, reason: str) -> None:
        """Record failure with its reason, once."""
        ...

    def cancel_job(self, job_id: str) -> bool:
        """Have an open job not worked on any further; False when it has ended or is unknown."""
        ...

    def start_stage(self, job_id: str, stage: str) -> bool:
        """Note that work on a job has come to a stage; False when the job has ended: nobody wants
        the rest of it."""
        ...

    def list_stages(self, job_id: str) -> list[str]:
        """The stages that work on an open job has come to, in order; none of one that ended."""
        ...

    def reopen_jobs(self, job_ids: Sequence[str]) -> None:
        """Have failed jobs worked on again; others are left as they are."""
        ...

    def get_job(self, job_id: str) -> Job:
        """One job; raises NotFoundError when there is none of this id."""
        ...

    def list_open_jobs(self, kind: JobKind, limit: int = 10_000) -> list[str]:
        """Ids of jobs that have not ended, oldest first."""
        ...

    def count_open_jobs(self, kind: JobKind) -> int:
        """How many jobs have not ended."""
        ...

    def get_oldest_job_age(self, kind: JobKind) -> float:
        """Seconds since the oldest job that has not ended was accepted; 0 without any."""
        ...

    def get_job_states(self, job_ids: Sequence[str]) -> dict[str, tuple[str, str]]:
        """State and reason of each job that is known."""
        ...

    def list_failed_jobs(self, limit: int = 100) -> list[Job]:
        """Jobs that failed, newest first."""
        ...

    def delete_ended_jobs(self, kind: JobKind, age_seconds: float) -> int:
        """Drop jobs of a kind that ended more than `age` seconds ago; how many."""
        ...

    def list_pending_replies(self, limit: int = 100) -> list[str]:
        """The outbox: ids of jobs that have ended and whose sender waits for a reply, those that
        ended first before others. A job enters it in the write that ends it."""
        ...

    def mark_replied(self, job_id: str) -> None:
        """The reply to a job was sent: it leaves the outbox for good."""
        ...

    def wait_for_pending_reply(self, seconds: float) -> None:
        """Wait until a job comes into the outbox, at most `seconds`; perhaps less, never more."""
        ...

    def add_dead_letter(self, letter: DeadLetter) -> None:
        """Keep a dead letter until somebody retries or discards it; the oldest of more than
        `MOST_LETTERS` make room."""
        ...

    def list_dead_letters(self, limit: int = 100) -> list[DeadLetter]:
        """Dead letters, newest first."""
        ...

    def get_dead_letter(self, letter_id: str) -> DeadLetter:
        """One dead letter; raises NotFoundError when there is none of this id."""
        ...

    def count_dead_letters(self) -> int:
        """How many dead letters there are."""
        ...

    def delete_dead_letter(self, letter_id: str) -> bool:
        """Drop a dead letter; False when it is gone already."""
        ...

    def close(self) -> None:
        """Release the file or the connection."""
        ...


def job_id(event: Event) -> str:
    """The id of an event's job.

    CloudEvents are identified by source and id together: ids that skillbus gave are unique
    alone, of others both are needed. They count for one owner: nobody can have another's event
    taken for one that came before.
    """
    if event.source.startswith("skillbus/"):
        return event.id
    named = (event.source, event.id, *filter(None, [event.owner]))
    return hashlib.sha256("\0".join(named).encode()).hexdigest()[:32]


def trace_of(event: Event) -> str:
    """The trace id of all that an event leads to: its producer's, else the id of its job."""
    return get_trace_id(event) or job_id(event)


def wants_reply(event: Event) -> bool:
    """Whether the sender of an event named a queue for the reply."""
    return bool(getattr(event, "replyto", ""))


def new_dead_letter_id(now: float) -> str:
    """An id that sorts by time."""
    return f"{int(now * 1000):012x}-{uuid.uuid4().hex[:8]}"
