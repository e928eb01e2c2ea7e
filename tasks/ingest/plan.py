"""Plan: from an event to the skills that need ingest (spec §4.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import structlog
from structlog.contextvars import bound_contextvars

from config.errors import PermanentError, TransientError
from graph.protocol import SkillGraph, SkillState, Source
from skills.events import EventData, SkillRemoved, SkillUpserted, SourceChanged, SourceRemoved
from skills.record import RevisionKey
from tasks.ingest.coalesce import EventBatch, collect_batches
from tasks.ingest.diff import get_source_ids, sync_source
from tasks.policies import FETCH, LINK, PLAN, Deadline
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

log = structlog.get_logger()

_RECHECK_LIMIT = 100
_MAX_TURN_SECONDS = 3.0


def plan(services: Services, deadline: Deadline, event_ids: Sequence[str]) -> dict[str, object]:
    """Carry out accepted events, each recorded as done or failed.

    Takes all that are open along, so that a burst is one order; one task plans at a time. An
    order that fails touches no other. Raises TransientError when one is to be tried again.
    """
    done, waiting = 0, list(event_ids)
    seen: set[str] = set()
    while waiting:
        with services.coordinator.try_lock("plan") as acquired:
            if not acquired:
                break  # the other one looks again once it is done
            batches, refused = collect_batches(services, deadline, waiting)
            for event_id, reason in refused:
                fail_events_with_reason(services, [event_id], reason)
            passing = [_process_with_trace(services, deadline, batch) for batch in batches]
            done += sum(len(batch.event_ids) for batch in batches)
        for error in passing:
            if error is not None:
                raise error
        # What others brought meanwhile was turned away.
        seen.update(waiting, *(batch.event_ids for batch in batches))
        still_open = services.journal.list_open_jobs("event", _RECHECK_LIMIT)
        waiting = [event_id for event_id in still_open if event_id not in seen][:1]
        if waiting and deadline.remaining() < PLAN.time_limit - _MAX_TURN_SECONDS:
            services.send_task(PLAN.name, waiting)  # what was planned has its turn
            break
    return {"events": done}


def _process_with_trace(
    services: Services, deadline: Deadline, batch: EventBatch
) -> TransientError | None:
    """Carry out an order under the trace of its first event."""
    with bound_contextvars(trace_id=batch.trace_ids[0]):
        return _process_batch(services, deadline, batch)


def _process_batch(
    services: Services, deadline: Deadline, batch: EventBatch
) -> TransientError | None:
    """Carry out an order and record it; an error that may pass is returned, for later."""
    content = batch.content
    try:
        if needs_fetch(content, services.graph.list_sources):
            services.send_task(FETCH.name, batch.event_ids)  # slow servers hold up nobody here
            return None
        if isinstance(content, SourceChanged):
            outcome = _apply_source_change(services, deadline, content, batch.event_ids)
        elif isinstance(content, SkillRemoved):
            outcome = _remove_skills(services, [content.skill_id])
        elif isinstance(content, SourceRemoved):
            outcome = _remove_source(services, content.source_id)
        elif isinstance(content, SkillUpserted):
            outcome = _apply_skill_upsert(services, deadline, content)
        else:
            raise PermanentError("neither a question nor an answer changes the library")
    except TransientError as error:
        return error
    except PermanentError as error:
        log.warning("event failed", event_ids=batch.event_ids[:10], reason=str(error))
        fail_events_with_reason(services, batch.event_ids, str(error))
    except Exception as error:  # nobody else may suffer from an order that nothing was made for
        log.exception("event failed unexpectedly", event_ids=batch.event_ids[:10])
        fail_events(services, batch.event_ids, error)
    else:
        record_outcome(services, batch, outcome)
        log.info(
            "event carried out", events=len(batch.event_ids), **outcome, **_other_traces(batch)
        )
    return None


def record_outcome(services: Services, batch: EventBatch, outcome: dict[str, object]) -> None:
    """Record events as done, or as failed where the skill they named is not there."""
    entries = (
        services.graph.get_entries(list(batch.expected_skills.values()))
        if batch.expected_skills
        else ()
    )
    there = {entry.skill_id for entry in entries if entry.state is not SkillState.REMOVED}
    for event_id in batch.event_ids:
        skill_id = batch.expected_skills.get(event_id)
        if skill_id is None or skill_id in there:
            services.journal.finish_job(event_id, outcome)
        else:
            services.journal.fail_job(event_id, f"no skill {skill_id} in its source")


def needs_fetch(content: EventData, sources: Callable[[], Iterable[Source]]) -> bool:
    """Whether an order is about a git source, whose content has to be fetched first."""
    if not isinstance(content, SourceChanged):
        return False
    if content.git is not None:
        return True
    source = find_source(sources(), content.source_id)
    return source is not None and source.kind == "git"


def _other_traces(batch: EventBatch) -> dict[str, object]:
    """The traces of events that were carried out together with the first."""
    return {"also_traces": batch.trace_ids[1:]} if batch.trace_ids[1:] else {}


def fail_events(services: Services, event_ids: Sequence[str], error: BaseException) -> None:
    """Record events that failed for good; what may pass stays accepted and is sent again."""
    if isinstance(error, TransientError):
        return
    fail_events_with_reason(
        services, event_ids, f"failed unexpectedly: {type(error).__name__}: {error}"
    )


def fail_events_with_reason(services: Services, event_ids: Sequence[str], reason: str) -> None:
    """Record events that failed, all for one reason."""
    for event_id in event_ids:
        services.journal.fail_job(event_id, reason)


def _apply_source_change(
    services: Services, deadline: Deadline, content: SourceChanged, event_ids: Sequence[str]
) -> dict[str, object]:
    if _is_upload_change(services.graph, content):
        install_packages(services, content.source_id, event_ids)
        return _sync_upload(services, deadline, content.source_id, content.paths)
    root = resolve_root(Path(content.root or _known_root(services.graph, content.source_id)))
    source = Source(content.source_id, "directory", str(root))
    with open_reader(source, services.settings) as reader:
        return sync_source(services, deadline, source, reader, content.paths)


def _is_upload_change(graph: SkillGraph, content: SourceChanged) -> bool:
    """Whether a change is of a source whose skills come by value."""
    if content.root:
        return content.root == upload_root(content.source_id)
    source = find_source(graph.list_sources(), content.source_id)
    return source is not None and source.kind == UPLOAD_KIND


def _apply_skill_upsert(
    services: Services, deadline: Deadline, content: SkillUpserted
) -> dict[str, object]:
    path = install_skill_files(services, content)
    return _sync_upload(services, deadline, content.skill_id.partition(":")[0], [path])


def _sync_upload(
    services: Services, deadline: Deadline, source_id: str, paths: Sequence[str]
) -> dict[str, object]:
    source = make_upload_source(source_id)
    with open_reader(source, services.settings) as reader:
        return sync_source(services, deadline, source, reader, paths)


def _known_root(graph: SkillGraph, source_id: str) -> str:
    source = find_source(graph.list_sources(), source_id)
    if source is None:
        raise PermanentError(
            f"no source {source_id!r}; `skillbus sources list` names them, and an event that gives "
            "a `root` begins one"
        )
    return source.root


def _remove_skills(services: Services, skill_ids: Sequence[str]) -> dict[str, object]:
    known = [entry.skill_id for entry in services.graph.get_entries(skill_ids)]
    if not known:
        raise PermanentError(f"no skill {', '.join(skill_ids)} in the catalog")
    seq = services.graph.allocate_sequence(1)[0]
    removed = services.graph.remove([RevisionKey(skill_id, seq) for skill_id in known])
    delete_uploaded_skills(services, known)
    services.send_task(LINK.name, [])
    return {"removed": len(removed)}


def _remove_source(services: Services, source_id: str) -> dict[str, object]:
    if source_id not in get_source_ids(services.graph):
        raise PermanentError(f"no source {source_id!r}; `skillbus sources list` names them")
    entries = services.graph.get_entries_under(source_id, "")
    seq = services.graph.allocate_sequence(1)[0]
    removed = services.graph.remove([RevisionKey(entry.skill_id, seq) for entry in entries])
    delete_uploaded_skills(services, [entry.skill_id for entry in entries])
    services.graph.delete_source(source_id)
    delete_mirror(source_id, services.settings)
    services.send_task(LINK.name, [])
    return {"removed": len(removed)}
