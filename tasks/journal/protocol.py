"""Protocols of the journal: accepted jobs, the outbox of replies, dead letters, records of work.

An event or query is in the journal before its submission is confirmed and before any task runs, so
neither a restarted broker nor a killed worker loses it. Every implementation passes
`tests/contract/test_journal.py`.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from config.errors import NotFoundError
from skills.events import Event, EventData, OutcomesReported, QueryAsked, get_trace_id
from tasks.journal.work_records import WorkRecords

JobKind = Literal["event", "query", "outcome"]
"""Kind of a job. Events change the library; outcomes report on the skills of a query."""

MAX_BODY_CHARACTERS = 16_384
"""Maximum characters that are kept of an unreadable message."""

MAX_ASKED = 20
"""Maximum queries of an owner that are listed."""

MAX_DEAD_LETTERS = 10_000
"""Maximum dead letters, so that a flood of unreadable messages cannot fill the journal."""


@dataclass(frozen=True, slots=True)
class Job:
    """An accepted event, query or report of outcomes, with its own outcome.

    state: `accepted`, `done`, `failed` or `cancelled`. outcome: of a job that is done, or
    `{"usage": true}` if it failed because the request was wrong. accepted: seconds since the epoch.
    expires_in_seconds: time left, when the job was read, until its outcome is no longer wanted;
    negative once that time has passed, None without a limit. Both times are of the journal's clock.
    """

    id: str
    kind: str
    event: Event
    state: str
    outcome: dict[str, Any] | None
    reason: str
    accepted: float
    expires_in_seconds: float | None


class AskedQuery(NamedTuple):
    """A query in a list. task: its text, "" for the task of the session. accepted: seconds since
    the epoch."""

    id: str
    task: str
    state: str
    accepted: float


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A task that failed permanently, or a message that could not be read.

    task, ids: the task to send again; both empty for an unreadable message, whose text is `body`.
    attempts: how often the task was started. failed_at: seconds since the epoch.
    """

    id: str
    task: str
    ids: tuple[str, ...]
    reason: str
    attempts: int
    trace_id: str
    body: str
    failed_at: float


class EndedJobs(NamedTuple):
    """Jobs that ended in a state, and the time up to which they were read, in seconds since the
    epoch of the journal's clock."""

    job_ids: tuple[str, ...]
    until: float


class JobStore(Protocol):
    """Accepted events and queries, from their acceptance to their outcome.

    A job is open (`accepted`) until it is finished, failed or cancelled. Its first outcome stands:
    later ones are ignored, unless a failed job is reopened.
    """

    def add_job(self, event: Event, kind: JobKind, ttl_seconds: float | None = None) -> bool:
        """Record a job under `job_id(event)`; False if it was recorded before.

        The record survives a kill of the process. The embedded journal also waits for the disk,
        except for a query without a reply queue; Redis writes to disk as its server is set up.
        ttl_seconds: time for which its outcome is wanted, None without a limit.
        """
        ...

    def finish_job(self, job_id: str, outcome: dict[str, Any] | None = None) -> bool:
        """End an open job as `done`; False if it has ended or is unknown, which changes nothing."""
        ...

    def fail_job(self, job_id: str, reason: str, *, usage: bool = False) -> None:
        """End an open job as `failed`; no effect on an ended or unknown job.

        usage: whether the request itself was wrong; kept as the outcome `{"usage": true}`.
        """
        ...

    def cancel_job(self, job_id: str) -> bool:
        """End an open job as `cancelled`; False if it has ended or is unknown.

        A task that works on it must stop at the next `start_stage` that returns False.
        """
        ...

    def start_stage(self, job_id: str, stage: str) -> bool:
        """Record that work on a job reached a stage; False if the job is not open.

        On False the caller must stop: the job's outcome is already recorded.
        """
        ...

    def list_stages(self, job_id: str) -> list[str]:
        """Return the stages started for an open job, in order; empty for any other job."""
        ...

    def reopen_jobs(self, job_ids: Sequence[str]) -> None:
        """Open failed jobs again; jobs in any other state are left as they are."""
        ...

    def get_job(self, job_id: str) -> Job:
        """Return one job; raises NotFoundError for an unknown id, UsageError for an event that this
        version cannot parse."""
        found = self.get_jobs([job_id])
        if not found:
            raise NotFoundError(f"no event or query with id {job_id!r}")
        found[job_id].event.parse_data()
        return found[job_id]

    def get_jobs(self, job_ids: Sequence[str]) -> dict[str, Job]:
        """Return jobs by id, read at once, in the order of the ids; unknown ids are left out.

        This version may be unable to parse the data of their events.
        """
        ...

    def list_open_jobs(self, kind: JobKind, limit: int = 10_000) -> list[str]:
        """Return the ids of open jobs, oldest first."""
        ...

    def count_open_jobs(self, kind: JobKind) -> int:
        """Return the number of open jobs."""
        ...

    def get_oldest_job_age(self, kind: JobKind) -> float:
        """Return the seconds since the oldest open job was accepted; 0 without open jobs."""
        ...

    def get_job_states(self, job_ids: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Return job id -> (state, reason); unknown ids are left out."""
        ...

    def list_ended_jobs(self, kind: JobKind, since: float, state: str = "done") -> EndedJobs:
        """Return the jobs that ended in a state at or after a time, in the order in which they
        ended."""
        ...

    def list_asked(self, owner: str) -> list[AskedQuery]:
        """Return the newest queries of an owner, newest first, at most `MAX_ASKED`."""
        ...

    def forget_skill(self, skill_id: str) -> int:
        """Cancel open events that bring a skill, and delete every ended job that names it in its
        event or outcome; returns how many were deleted.

        Their senders get no replies any more. Runs of tasks that have a reason are deleted too,
        since the reason may quote the skill.
        """
        ...

    def delete_ended_jobs(self, kind: JobKind, age_seconds: float) -> int:
        """Delete jobs that ended more than `age_seconds` ago; returns their number."""
        ...


class Outbox(Protocol):
    """Ended jobs whose sender waits for a reply.

    The write that ends a job also puts it into the outbox, so no reply is lost; a reply may be
    sent twice.
    """

    def list_pending_replies(self, limit: int = 100) -> list[str]:
        """Return the ids of ended jobs whose reply was not sent yet, in the order in which they
        ended."""
        ...

    def mark_replied(self, job_id: str) -> None:
        """Remove a job from the outbox; the caller has sent its reply."""
        ...

    def wait_for_pending_reply(self, seconds: float) -> None:
        """Block until a job enters the outbox, at most `seconds`; may return early without one."""
        ...


class DeadLetterStore(Protocol):
    """Tasks that failed permanently and unreadable messages, kept until retried or discarded."""

    def add_dead_letter(self, letter: DeadLetter) -> None:
        """Keep a dead letter durably; beyond `MAX_DEAD_LETTERS` the oldest are deleted."""
        ...

    def list_dead_letters(self, limit: int = 100) -> list[DeadLetter]:
        """Return the dead letters, newest first."""
        ...

    def get_dead_letter(self, letter_id: str) -> DeadLetter:
        """Return one dead letter; raises NotFoundError for an unknown id."""
        ...

    def count_dead_letters(self) -> int:
        """Return the number of dead letters."""
        ...

    def delete_dead_letter(self, letter_id: str) -> bool:
        """Delete a dead letter; False if it does not exist."""
        ...

    def forget_dead_letters(self, skill_id: str) -> int:
        """Delete the dead letters that name a skill; returns how many."""
        ...


class EndedSessions(Protocol):
    """Sessions of the console that were logged out. All other state of a session is in its
    cookies."""

    def end_session(self, session_id: str, seconds: float) -> None:
        """Record durably that a session ended. seconds: time for which its cookies could still be
        used."""
        ...

    def is_session_ended(self, session_id: str) -> bool:
        """Return whether a session was ended, and its cookies could still be used."""
        ...


class Journal(JobStore, Outbox, DeadLetterStore, WorkRecords, EndedSessions, Protocol):
    """The five stores as one, for the code that opens and closes them.

    The threads and processes of a deployment share one journal.
    """

    def overwrite_deleted(self) -> None:
        """Make the content of deleted jobs and letters unreadable, within the means of a client."""
        ...

    def close(self) -> None:
        """Release the file or the connections."""
        ...


def quote_skill(skill_id: str) -> str:
    """Return a skill id as it is written in the JSON of events and outcomes that name it."""
    return json.dumps(skill_id, ensure_ascii=False)


def get_job_kind(data: EventData) -> JobKind:
    """Return the kind of the job of an event with this data."""
    if isinstance(data, QueryAsked):
        return "query"
    return "outcome" if isinstance(data, OutcomesReported) else "event"


def job_id(event: Event) -> str:
    """Return the id of an event's job.

    CloudEvents are identified by source and id together: ids from skillbus are unique on their own,
    other ids need both. They are unique per owner, so that no owner's event can be taken for a
    duplicate of another's.
    """
    if event.source.startswith("skillbus/"):
        return event.id
    named = (event.source, event.id, *filter(None, [event.owner]))
    return hashlib.sha256("\0".join(named).encode()).hexdigest()[:32]


def trace_of(event: Event) -> str:
    """Return the trace id of all work an event causes: its producer's, else its job id."""
    return get_trace_id(event) or job_id(event)


def wants_reply(event: Event) -> bool:
    """Return whether the sender of an event named a queue for the reply."""
    return bool(getattr(event, "replyto", ""))


def new_dead_letter_id(now: float) -> str:
    """Return an id that sorts by time. now: seconds since the epoch."""
    return f"{int(now * 1000):012x}-{uuid.uuid4().hex[:8]}"


def repeated_work_letter_id(task: str, ids: Sequence[str]) -> str:
    """Return the id of a dead letter of work that is sent again and again: a later failure
    replaces the letter."""
    return hashlib.sha256("\0".join([task, *ids]).encode()).hexdigest()[:21]
