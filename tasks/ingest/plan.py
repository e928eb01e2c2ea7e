"""Plan: from an event to the skills that need ingest (spec §4.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import structlog
from structlog.contextvars import bound_contextvars

from config.errors import PermanentError, TransientError
from graph.protocol import SkillGraph, Source, State
from skills.events import Data, SkillRemoved, SkillUpserted, SourceChanged, SourceRemoved
from skills.record import RevisionKey
from tasks.ingest.coalesce import Order, open_orders
from tasks.ingest.diff import follow, source_ids
from tasks.policies import FETCH, LINK, PLAN, Deadline
from tasks.services import Services
from tasks.sources.directory import check_root
from tasks.sources.git.mirror import drop_mirror
from tasks.sources.readers import known_source, open_reader
from tasks.sources.uploads.arrival import (
    delete_skills,
    put_files,
    put_packages,
    upload_source,
)
from tasks.sources.uploads.store import KIND, root_of

log = structlog.get_logger()

_LOOK_AGAIN = 100
_AT_A_TIME_SECONDS = 3.0


def plan(services: Services, deadline: Deadline, event_ids: Sequence[str]) -> dict[str, object]:
    """Carry out accepted events, each recorded as done or failed.

    Takes all that are open along, so that a burst is one order; one task plans at a time. An
    order that fails touches no other. Raises TransientError when one is to be tried again.
    """
    done, waiting = 0, list(event_ids)
    seen: set[str] = set()
    while waiting:
        with services.activity.exclusive("plan") as first:
            if not first:
                break  # the other one looks again once it is done
            orders, refused = open_orders(services, deadline, waiting)
            for event_id, reason in refused:
                fail_all(services, [event_id], reason)
            passing = [_traced(services, deadline, order) for order in orders]
            done += sum(len(order.event_ids) for order in orders)
        for error in passing:
            if error is not None:
                raise error
        # What others brought meanwhile was turned away.
        seen.update(waiting, *(order.event_ids for order in orders))
        still_open = services.journal.open_jobs("event", _LOOK_AGAIN)
        waiting = [event_id for event_id in still_open if event_id not in seen][:1]
        if waiting and deadline.remaining() < PLAN.seconds - _AT_A_TIME_SECONDS:
            services.send(PLAN.name, waiting)  # what was planned has its turn
            break
    return {"events": done}


def _traced(services: Services, deadline: Deadline, order: Order) -> TransientError | None:
    """Carry out an order under the trace of its first event."""
    with bound_contextvars(trace_id=order.trace_ids[0]):
        return _carry_out(services, deadline, order)


def _carry_out(services: Services, deadline: Deadline, order: Order) -> TransientError | None:
    """Carry out an order and record it; an error that may pass is returned, for later."""
    content = order.content
    try:
        if is_fetched(content, services.graph.sources):
            services.send(FETCH.name, order.event_ids)  # slow servers hold up nobody here
            return None
        if isinstance(content, SourceChanged):
            outcome = _source_changed(services, deadline, content, order.event_ids)
        elif isinstance(content, SkillRemoved):
            outcome = _skills_removed(services, [content.skill_id])
        elif isinstance(content, SourceRemoved):
            outcome = _source_removed(services, content.source_id)
        elif isinstance(content, SkillUpserted):
            outcome = _skill_came(services, deadline, content)
        else:
            raise PermanentError("neither a question nor an answer changes the library")
    except TransientError as error:
        return error
    except PermanentError as error:
        log.warning("event failed", event_ids=order.event_ids[:10], reason=str(error))
        fail_all(services, order.event_ids, str(error))
    except Exception as error:  # nobody else may suffer from an order that nothing was made for
        log.exception("event failed unexpectedly", event_ids=order.event_ids[:10])
        fail_events(services, order.event_ids, error)
    else:
        record(services, order, outcome)
        log.info("event carried out", events=len(order.event_ids), **outcome, **_others(order))
    return None


def record(services: Services, order: Order, outcome: dict[str, object]) -> None:
    """Record events as done, or as failed where the skill they named is not there."""
    entries = services.graph.entries(list(order.upserted.values())) if order.upserted else ()
    there = {entry.skill_id for entry in entries if entry.state is not State.REMOVED}
    for event_id in order.event_ids:
        skill_id = order.upserted.get(event_id)
        if skill_id is None or skill_id in there:
            services.journal.finish(event_id, outcome)
        else:
            services.journal.fail(event_id, f"no skill {skill_id} in its source")


def is_fetched(content: Data, sources: Callable[[], Iterable[Source]]) -> bool:
    """Whether an order is about a git source, whose content has to be fetched first."""
    if not isinstance(content, SourceChanged):
        return False
    if content.git is not None:
        return True
    source = known_source(sources(), content.source_id)
    return source is not None and source.kind == "git"


def _others(order: Order) -> dict[str, object]:
    """The traces of events that were carried out together with the first."""
    return {"also_traces": order.trace_ids[1:]} if order.trace_ids[1:] else {}


def fail_events(services: Services, event_ids: Sequence[str], error: BaseException) -> None:
    """Record events that failed for good; what may pass stays accepted and is sent again."""
    if isinstance(error, TransientError):
        return
    fail_all(services, event_ids, f"failed unexpectedly: {type(error).__name__}: {error}")


def fail_all(services: Services, event_ids: Sequence[str], reason: str) -> None:
    """Record events that failed, all for one reason."""
    for event_id in event_ids:
        services.journal.fail(event_id, reason)


def _source_changed(
    services: Services, deadline: Deadline, content: SourceChanged, event_ids: Sequence[str]
) -> dict[str, object]:
    if _is_upload(services.graph, content):
        put_packages(services, content.source_id, event_ids)
        return _follow_upload(services, deadline, content.source_id, content.paths)
    root = check_root(Path(content.root or _known_root(services.graph, content.source_id)))
    source = Source(content.source_id, "directory", str(root))
    with open_reader(source, services.settings) as reader:
        return follow(services, deadline, source, reader, content.paths)


def _is_upload(graph: SkillGraph, content: SourceChanged) -> bool:
    """Whether a change is of a source whose skills come by value."""
    if content.root:
        return content.root == root_of(content.source_id)
    source = known_source(graph.sources(), content.source_id)
    return source is not None and source.kind == KIND


def _skill_came(
    services: Services, deadline: Deadline, content: SkillUpserted
) -> dict[str, object]:
    path = put_files(services, content)
    return _follow_upload(services, deadline, content.skill_id.partition(":")[0], [path])


def _follow_upload(
    services: Services, deadline: Deadline, source_id: str, paths: Sequence[str]
) -> dict[str, object]:
    source = upload_source(source_id)
    with open_reader(source, services.settings) as reader:
        return follow(services, deadline, source, reader, paths)


def _known_root(graph: SkillGraph, source_id: str) -> str:
    source = known_source(graph.sources(), source_id)
    if source is None:
        raise PermanentError(
            f"no source {source_id!r}; `skillbus sources list` names them, and an event that gives "
            "a `root` begins one"
        )
    return source.root


def _skills_removed(services: Services, skill_ids: Sequence[str]) -> dict[str, object]:
    known = [entry.skill_id for entry in services.graph.entries(skill_ids)]
    if not known:
        raise PermanentError(f"no skill {', '.join(skill_ids)} in the catalog")
    seq = services.graph.take_seqs(1)[0]
    removed = services.graph.remove([RevisionKey(skill_id, seq) for skill_id in known])
    delete_skills(services, known)
    services.send(LINK.name, [])
    return {"removed": len(removed)}


def _source_removed(services: Services, source_id: str) -> dict[str, object]:
    if source_id not in source_ids(services.graph):
        raise PermanentError(f"no source {source_id!r}; `skillbus sources list` names them")
    entries = services.graph.entries_under(source_id, "")
    seq = services.graph.take_seqs(1)[0]
    removed = services.graph.remove([RevisionKey(entry.skill_id, seq) for entry in entries])
    delete_skills(services, [entry.skill_id for entry in entries])
    services.graph.drop_source(source_id)
    drop_mirror(source_id, services.settings)
    services.send(LINK.name, [])
    return {"removed": len(removed)}
