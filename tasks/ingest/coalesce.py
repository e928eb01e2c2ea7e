"""Bursts: many events that say the same are carried out once (spec §4.1)."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from config.errors import NotFoundError, PermanentError
from skills.events import EventData, SkillRemoved, SkillUpserted, SourceChanged, SourceRemoved
from tasks.journal.protocol import Job, JobStore, trace_of
from tasks.policies import Deadline
from tasks.services import Services

_MAX_EVENTS = 2_000
_QUIET_SECONDS = 0.15
_MAX_WAIT_SECONDS = 4.0


@dataclass(slots=True)
class EventBatch:
    """What is to be carried out once, and the events that asked for it, each with its trace.

    upserted: event id -> id of the skill that it named, which must be there afterwards.
    """

    content: EventData
    event_ids: list[str] = field(default_factory=list)
    trace_ids: list[str] = field(default_factory=list)
    expected_skills: dict[str, str] = field(default_factory=dict)

    def add(self, job: Job, named: EventData) -> None:
        """Take an event in, with the data that it came with."""
        self.event_ids.append(job.id)
        self.trace_ids.append(trace_of(job.event))
        if isinstance(named, SkillUpserted):
            self.expected_skills[job.id] = named.skill_id


def collect_batches(
    services: Services,
    deadline: Deadline,
    event_ids: Sequence[str],
    exclude: Collection[str] = (),
) -> tuple[list[EventBatch], list[tuple[str, str]]]:
    """Orders for these events and all others that are open, oldest first, `without` some.

    Where many are open, more are likely on their way: they are waited for a little, until none
    comes any more. Also returns the events whose content cannot be read, each with the reason.
    """
    jobs: dict[str, Job] = {}
    unread: dict[str, str] = {}
    end = time.monotonic() + min(_MAX_WAIT_SECONDS, deadline.remaining() / 4)
    while fresh := _read_new_jobs(services.journal, event_ids, {*jobs, *exclude}, unread):
        jobs |= fresh
        if len(jobs) == 1 or time.monotonic() > end or services.stopping.wait(_QUIET_SECONDS):
            break
    batches, refused = coalesce_jobs(list(jobs.values()))
    return batches, [*unread.items(), *refused]


def _read_new_jobs(
    job_store: JobStore, event_ids: Sequence[str], seen: Collection[str], unread: dict[str, str]
) -> dict[str, Job]:
    """Open jobs that were not seen; `unread` takes those that cannot be read, with the reason."""
    ids = dict.fromkeys((*job_store.list_open_jobs("event", _MAX_EVENTS), *event_ids))
    found = {}
    for one in ids:
        if one in seen:
            continue
        try:
            job = job_store.get_job(one)
        except NotFoundError:  # carried out and forgotten since
            continue
        except PermanentError as error:  # another version has accepted it
            unread[one] = str(error)
            continue
        if job.state == "accepted":
            found[one] = job
    return found


def coalesce_jobs(jobs: Sequence[Job]) -> tuple[list[EventBatch], list[tuple[str, str]]]:
    """One order for all changes of a source; a removal keeps its place among them."""
    batches: list[EventBatch] = []
    latest: dict[str, EventBatch] = {}
    refused: list[tuple[str, str]] = []
    for job in jobs:
        try:
            named = job.event.parse_data()
        except PermanentError as error:
            refused.append((job.id, str(error)))
            continue
        content = _to_source_change(named)
        if isinstance(content, SourceChanged):
            batch = latest.get(content.source_id)
            both = _merge_changes(batch, content, named) if batch is not None else None
            if batch is not None and both is not None:
                batch.content = both
                batch.add(job, named)
                continue
        batches.append(batch := EventBatch(content))
        batch.add(job, named)
        for source_id in _source_ids_of(content):
            latest[source_id] = batch
    return batches, refused


def _to_source_change(content: EventData) -> EventData:
    """A skill that is to be read anew as a change of its source."""
    if not isinstance(content, SkillUpserted) or content.files is not None:
        return content
    source_id, _, path = content.skill_id.partition(":")
    return SourceChanged(source_id=source_id, paths=("SKILL.md" if path == "." else path,))


def _merge_changes(
    batch: EventBatch, content: SourceChanged, named: EventData
) -> SourceChanged | None:
    """Both changes in one; None where that would not be the same."""
    other = batch.content
    if not isinstance(other, SourceChanged):
        return None
    if other.root and content.root and other.root != content.root:
        return None
    whole = not other.paths or not content.paths
    # All of a source is looked at for what has changed, a skill that was named whatever it is.
    if whole and (batch.expected_skills or isinstance(named, SkillUpserted)):
        return None
    paths = () if whole else tuple(dict.fromkeys((*other.paths, *content.paths)))
    known = {
        "root": other.root or content.root,
        "git": content.git or other.git,
        "pushed": content.pushed or other.pushed,
    }
    return other.model_copy(update={"paths": paths, **known})


def _source_ids_of(content: EventData) -> tuple[str, ...]:
    if isinstance(content, SourceChanged | SourceRemoved):
        return (content.source_id,)
    if isinstance(content, SkillRemoved | SkillUpserted):
        return (content.skill_id.partition(":")[0],)
    return ()
