"""Coalesce events: many open events of one source become one batch of work."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from config import tracing
from config.errors import NotFoundError, PermanentError
from skills.events import (
    GATEWAY_SOURCE,
    EventData,
    SkillUpserted,
    SourceChanged,
    get_changed_source,
    get_trace_context,
)
from tasks.journal.protocol import Job, JobStore, trace_of
from tasks.policies import Deadline
from tasks.services import Services

MAX_EVENTS = 2_000
_QUIET_SECONDS = 0.15
_MAX_WAIT_SECONDS = 4.0


@dataclass(slots=True)
class EventBatch:
    """Events of one source that are carried out together, with one change that covers them all.

    trace_ids, contexts: one per event, in the order of `event_ids`. accepted: when the first event
    was accepted, in seconds since the epoch. expected_skills: event id -> the skill that the event
    named, which must exist afterwards. may_set_git: False if an event with git options comes from a
    token that is not an admin's.
    """

    content: EventData
    event_ids: list[str] = field(default_factory=list)
    trace_ids: list[str] = field(default_factory=list)
    contexts: list[tracing.TraceContext] = field(default_factory=list)
    expected_skills: dict[str, str] = field(default_factory=dict)
    accepted: float = math.inf
    may_set_git: bool = True

    def add(self, job: Job, data: EventData) -> None:
        """Add an event with its data as it was accepted."""
        self.event_ids.append(job.id)
        self.trace_ids.append(trace_of(job.event))
        self.contexts.append(get_trace_context(job.event))
        self.accepted = min(self.accepted, job.accepted)
        if isinstance(data, SkillUpserted):
            self.expected_skills[job.id] = data.skill_id
        elif isinstance(data, SourceChanged) and data.git is not None:
            # The gateway has checked the scope of the token.
            is_allowed = job.event.source == GATEWAY_SOURCE or not job.event.owner
            self.may_set_git = self.may_set_git and is_allowed

    def start_span(self, name: str) -> tracing.OpenSpan:
        """Start a span for all events: in the trace of the first, linked to the traces of the
        others."""
        attributes = {"skillbus.events": len(self.event_ids)}
        return tracing.trace(name, "internal", self.contexts, attributes)


def collect_batches(
    services: Services,
    deadline: Deadline,
    event_ids: Sequence[str],
    exclude: Collection[str] = (),
) -> tuple[list[EventBatch], list[tuple[str, str]]]:
    """Return batches of these and all other open events, oldest first, except `exclude`.

    While several events are open, this waits until no new event arrives for a moment, at most 4 s.
    Also returns the events whose content cannot be read, as (id, reason).
    """
    jobs: dict[str, Job] = {}
    unreadable: dict[str, str] = {}
    end = time.monotonic() + min(_MAX_WAIT_SECONDS, deadline.remaining() / 4)
    while fresh := _read_new_jobs(services.journal, event_ids, {*jobs, *exclude}, unreadable):
        jobs |= fresh
        if len(jobs) == 1 or time.monotonic() > end or services.stopping.wait(_QUIET_SECONDS):
            break
    batches, invalid = coalesce_jobs(list(jobs.values()))
    return batches, [*unreadable.items(), *invalid]


def _read_new_jobs(
    job_store: JobStore,
    event_ids: Sequence[str],
    seen: Collection[str],
    unreadable: dict[str, str],
) -> dict[str, Job]:
    """Return the open jobs that are not in `seen`; adds unreadable jobs to `unreadable`."""
    ids = dict.fromkeys((*job_store.list_open_jobs("event", MAX_EVENTS), *event_ids))
    found = {}
    for one in ids:
        if one in seen:
            continue
        try:
            job = job_store.get_job(one)
        except NotFoundError:  # ended, and deleted since
            continue
        except PermanentError as error:  # written by another version
            unreadable[one] = str(error)
            continue
        if job.state == "accepted":
            found[one] = job
    return found


def coalesce_jobs(jobs: Sequence[Job]) -> tuple[list[EventBatch], list[tuple[str, str]]]:
    """Return batches of jobs, and the invalid jobs as (id, reason).

    All changes of a source are one batch, but a change after a removal is not moved before it.
    """
    batches: list[EventBatch] = []
    latest: dict[str, EventBatch] = {}
    invalid: list[tuple[str, str]] = []
    for job in jobs:
        try:
            data = job.event.parse_data()
        except PermanentError as error:
            invalid.append((job.id, str(error)))
            continue
        content = _to_source_change(data)
        if isinstance(content, SourceChanged):
            batch = latest.get(content.source_id)
            merged = _merge_changes(batch, content, data) if batch is not None else None
            if batch is not None and merged is not None:
                batch.content = merged
                batch.add(job, data)
                continue
        batches.append(batch := EventBatch(content))
        batch.add(job, data)
        if source_id := get_changed_source(content):
            latest[source_id] = batch
    return batches, invalid


def _to_source_change(data: EventData) -> EventData:
    """Return an upserted skill without files as a change of its source, other data unchanged."""
    if not isinstance(data, SkillUpserted) or data.files is not None:
        return data
    source_id, _, path = data.skill_id.partition(":")
    return SourceChanged(source_id=source_id, paths=("SKILL.md" if path == "." else path,))


def _merge_changes(
    batch: EventBatch, content: SourceChanged, data: EventData
) -> SourceChanged | None:
    """Return one change that covers the batch's and another; None if they cannot be merged."""
    other = batch.content
    if not isinstance(other, SourceChanged):
        return None
    if other.root and content.root and other.root != content.root:
        return None
    is_whole = not other.paths or not content.paths
    # A sync of the whole source reads only what has changed, an upserted skill is always read.
    if is_whole and (batch.expected_skills or isinstance(data, SkillUpserted)):
        return None
    paths = () if is_whole else tuple(dict.fromkeys((*other.paths, *content.paths)))
    merged = {
        "root": other.root or content.root,
        "git": content.git or other.git,
        "pushed": content.pushed or other.pushed,
    }
    return other.model_copy(update={"paths": paths, **merged})
