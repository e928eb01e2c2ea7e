"""Carry out accepted events: find the skills to ingest, remove skills and sources."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from structlog.contextvars import bound_contextvars

from config.errors import PermanentError, TransientError, UsageError
from graph.protocol import Catalog
from graph.records import Source
from skills.events import (
    SkillRemoved,
    SkillUpserted,
    SourceChanged,
    SourceRemoved,
    get_changed_source,
)
from skills.record import RevisionKey, get_source_id
from tasks.history.keep import withdraw
from tasks.ingest.coalesce import EventBatch, collect_batches
from tasks.ingest.diff import get_source_ids, sync_source
from tasks.ingest.event_outcome import fail_batch, fail_events_with_reason, record_outcome
from tasks.ingest.next_tasks import needs_fetch, send_fetch, send_link, send_plan
from tasks.metrics_recorder import TaskOutcome
from tasks.policies import PLAN, Deadline, DeadlineExceededError
from tasks.record_work import record_batch
from tasks.services import Services
from tasks.sources.directory import resolve_root
from tasks.sources.git.mirror import delete_mirror
from tasks.sources.readers import find_source, open_reader
from tasks.sources.uploads.install import (
    delete_uploaded_skills,
    install_packages,
    install_skill_files,
    make_upload_source,
)
from tasks.sources.uploads.store import UPLOAD_KIND, upload_root

_SLOW_SECONDS = 86_400.0
_MAX_RUN_SECONDS = 3.0
"""Seconds after which open events are left to a new task, so that other tasks get a turn."""


def plan(services: Services, deadline: Deadline, event_ids: Sequence[str]) -> dict[str, object]:
    """Carry out these and all other open events, each recorded as done or failed.

    Events of one source are carried out together; events of git sources are forwarded to `fetch`.
    One task of all processes plans at a time. A batch that fails does not affect the others: a
    source that used up the time comes last for a day. Raises TransientError if a batch is to be
    retried; later batches of its source wait, since their order counts.
    """
    # From the oldest on, since their order counts and more may be open than are read at once.
    done, waiting = 0, services.journal.list_open_jobs("event", 1) or list(event_ids)
    seen: set[str] = set()
    while waiting:
        with services.coordinator.try_lock("plan") as acquired:
            if not acquired:
                break  # the task that holds the lock checks for open events again when it is done
            batches, invalid = collect_batches(services, deadline, waiting)
            for event_id, reason in invalid:
                fail_events_with_reason(services, [event_id], reason)
            batches = _put_slow_last(services, batches)
            errors = _process_in_order(services, deadline, batches)
            done += sum(len(batch.event_ids) for batch in batches)
        if errors:
            raise errors[0]
        # Tasks for events that arrived meanwhile did not get the lock.
        seen.update(waiting, *(batch.event_ids for batch in batches))
        # Events of git sources that were forwarded stay open; they may come before newer ones.
        still_open = services.journal.list_open_jobs("event", len(seen) + 1)
        waiting = [event_id for event_id in still_open if event_id not in seen][:1]
        if waiting and deadline.remaining() < PLAN.time_limit - _MAX_RUN_SECONDS:
            send_plan(services, waiting)
            break
    return {"events": done}


def _put_slow_last(services: Services, batches: Sequence[EventBatch]) -> list[EventBatch]:
    """Return batches of sources that used up the time of an earlier task after the others."""
    names = [_slow_name(batch) for batch in batches]
    slow = services.coordinator.find_paused(names)
    return sorted(batches, key=lambda batch: _slow_name(batch) in slow)


def _slow_name(batch: EventBatch) -> str:
    return f"plan {get_changed_source(batch.content)}"


def _process_in_order(
    services: Services, deadline: Deadline, batches: Sequence[EventBatch]
) -> list[TransientError]:
    """Carry out batches; returns an error for each source with a batch that is to be retried.

    Later batches of such a source are left open. The removal of the source is carried out at once,
    and fails the batches before it.
    """
    git: list[EventBatch] = []
    errors: dict[str, TransientError] = {}
    waiting: defaultdict[str, list[EventBatch]] = defaultdict(list)
    for batch in batches:
        source_id = get_changed_source(batch.content)
        is_removal = isinstance(batch.content, SourceRemoved)
        if source_id in errors and not is_removal:
            waiting[source_id].append(batch)
            continue
        error = _process_with_trace(services, deadline, batch, git)
        if error is not None:
            errors[source_id] = error
            waiting[source_id].append(batch)
        elif is_removal and errors.pop(source_id, None) is not None:
            for earlier in waiting.pop(source_id):
                reason = "the source was removed meanwhile"
                fail_events_with_reason(services, earlier.event_ids, reason)
    return list(errors.values())


def _process_with_trace(
    services: Services, deadline: Deadline, batch: EventBatch, git: list[EventBatch]
) -> TransientError | None:
    """Call `_process_batch`, logged and traced under the trace id of the batch's first event."""
    started = time.time()
    with bound_contextvars(trace_id=batch.trace_ids[0]), batch.start_span("plan events"):
        outcome, error = _process_batch(services, deadline, batch, git)
        record_batch(services, PLAN, batch, started, outcome, error)
    return error if isinstance(error, TransientError) else None


def _process_batch(
    services: Services, deadline: Deadline, batch: EventBatch, git: list[EventBatch]
) -> tuple[TaskOutcome, Exception | None]:
    """Carry out a batch and record its events; returns the outcome, and the error if any.

    git: earlier batches of git sources; a batch of a git source is added.
    """
    content, had_time = batch.content, deadline.remaining() > 0
    try:
        if needs_fetch(content, services.graph.list_sources):
            if not git:  # one fetch handles all open events; in another task, since hosts are slow
                send_fetch(services, batch.event_ids)
            git.append(batch)
            return "passing", None
        if isinstance(content, SourceChanged):
            outcome = _apply_source_change(services, deadline, content, batch)
        elif isinstance(content, SkillRemoved):
            outcome = _remove_skill(services, content.skill_id)
        elif isinstance(content, SourceRemoved):
            outcome = _remove_source(services, content.source_id)
        elif isinstance(content, SkillUpserted):
            outcome = _apply_skill_upsert(services, deadline, content, batch.accepted)
        else:
            raise PermanentError(f"{type(content).__name__} does not change the library")
    except TransientError as error:
        if had_time and isinstance(error, DeadlineExceededError):
            services.coordinator.pause(_slow_name(batch), str(error), _SLOW_SECONDS)
        return "passing", error
    except Exception as error:  # fails only this batch
        fail_batch(services, batch, error)
        return "failed", error
    record_outcome(services, batch, outcome)
    return "done", None


def _apply_source_change(
    services: Services, deadline: Deadline, content: SourceChanged, batch: EventBatch
) -> dict[str, object]:
    if _is_upload_change(services.graph, content):
        install_packages(services, content.source_id, batch.event_ids)
        return _sync_upload(services, deadline, content.source_id, content.paths, batch.accepted)
    root = resolve_root(Path(content.root or _known_root(services.graph, content.source_id)))
    source = Source(content.source_id, "directory", str(root))
    with open_reader(source, services.settings) as reader:
        return sync_source(services, deadline, source, reader, content.paths, since=batch.accepted)


def _is_upload_change(graph: Catalog, content: SourceChanged) -> bool:
    """Return whether a change is about a source of uploaded skills."""
    if content.root:
        return content.root == upload_root(content.source_id)
    source = find_source(graph.list_sources(), content.source_id)
    return source is not None and source.kind == UPLOAD_KIND


def _apply_skill_upsert(
    services: Services, deadline: Deadline, content: SkillUpserted, since: float
) -> dict[str, object]:
    path = install_skill_files(services, content)
    return _sync_upload(services, deadline, get_source_id(content.skill_id), [path], since)


def _sync_upload(
    services: Services, deadline: Deadline, source_id: str, paths: Sequence[str], since: float
) -> dict[str, object]:
    source = make_upload_source(source_id)
    with open_reader(source, services.settings) as reader:
        return sync_source(services, deadline, source, reader, paths, since=since)


def _known_root(graph: Catalog, source_id: str) -> str:
    source = find_source(graph.list_sources(), source_id)
    if source is None:
        raise PermanentError(
            f"no source {source_id!r}; `skillbus sources list` lists them, and an event with a "
            "`root` adds one"
        )
    return source.root


def _remove_skill(services: Services, skill_id: str) -> dict[str, object]:
    if not services.graph.get_entries([skill_id]):
        raise PermanentError(f"no skill {skill_id}; `skillbus skills list` lists them")
    seq = services.graph.allocate_sequence(1)[0]
    removed = withdraw(services, [RevisionKey(skill_id, seq)])
    delete_uploaded_skills(services, [skill_id])
    send_link(services)
    return {"removed": len(removed)}


def _remove_source(services: Services, source_id: str) -> dict[str, object]:
    if source_id not in get_source_ids(services.graph):
        raise PermanentError(f"no source {source_id!r}; `skillbus sources list` lists them")
    entries = services.graph.get_entries_under(source_id, "")
    seq = services.graph.allocate_sequence(1)[0]
    removed = withdraw(services, [RevisionKey(entry.skill_id, seq) for entry in entries])
    delete_uploaded_skills(services, [entry.skill_id for entry in entries])
    try:
        services.graph.delete_source(source_id)
    except UsageError as error:  # an ingest has published a skill since
        raise TransientError(str(error)) from None
    delete_mirror(source_id, services.settings)
    send_link(services)
    return {"removed": len(removed)}
