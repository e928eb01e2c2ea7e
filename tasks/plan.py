"""Plan: from an event to the skills that need ingest (spec §4.1)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import structlog
from structlog.contextvars import bound_contextvars, get_contextvars

from config.errors import PermanentError, TransientError
from config.settings import LimitSettings
from graph.protocol import Entry, SkillGraph, Source, State
from skills.events import SkillRemoved, SkillUpserted, SourceChanged, SourceRemoved
from skills.parsing import parse_skill
from skills.record import RevisionKey
from tasks.bursts import Order, open_orders
from tasks.folders import (
    Scan,
    check_inside,
    check_root,
    owning_skill,
    parse_limits,
    read_folder,
    scan,
)
from tasks.policies import INGEST, LINK, PLAN, Deadline
from tasks.services import Services

log = structlog.get_logger()

_CHUNK_BYTES = 192_000
_CHUNK_SKILLS = 32
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
        if isinstance(content, SourceChanged):
            outcome = _source_changed(services, deadline, content)
        elif isinstance(content, SkillRemoved):
            outcome = _skills_removed(services, [content.skill_id])
        elif isinstance(content, SourceRemoved):
            outcome = _source_removed(services, content.source_id)
        elif isinstance(content, SkillUpserted):
            raise PermanentError("skills that come with their files are not taken here")
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
        _record(services, order, outcome)
        log.info("event carried out", events=len(order.event_ids), **outcome, **_others(order))
    return None


def _record(services: Services, order: Order, outcome: dict[str, object]) -> None:
    """Record events as done, or as failed where the skill they named is not there."""
    entries = services.graph.entries(list(order.upserted.values())) if order.upserted else ()
    there = {entry.skill_id for entry in entries if entry.state is not State.REMOVED}
    for event_id in order.event_ids:
        skill_id = order.upserted.get(event_id)
        if skill_id is None or skill_id in there:
            services.journal.finish(event_id, outcome)
        else:
            services.journal.fail(event_id, f"no skill {skill_id} in its source")


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


def preview(
    graph: SkillGraph | None, content: SourceChanged, limits: LimitSettings
) -> dict[str, list[str]]:
    """What a sync would do: ids that are `new`, `changed`, `removed`, `refused`; writes nothing."""
    root = check_root(Path(content.root))
    found = scan(root, "", limits)
    entries = graph.entries_under(content.source_id, "") if graph is not None else []
    known = {entry.path: entry for entry in entries if entry.state is not State.REMOVED}
    cursor = graph.cursor(content.source_id) if graph is not None else {}
    changed = []
    for path, signature in found.signatures.items():
        if path not in known or (signature and cursor.get(path) == signature):
            continue
        try:
            same = read_folder(root, path, limits).content_hash == known[path].content_hash
        except PermanentError:
            same = False
        if not same:
            changed.append(path)
    report = {
        "new": [path for path in found.signatures if path not in known],
        "changed": changed,
        "removed": [path for path in known if _is_gone(path, found)],
        "refused": list(found.refused),
    }
    return {
        kind: sorted(skill_id_of(content.source_id, path) for path in paths)
        for kind, paths in report.items()
    }


def skill_id_of(source_id: str, path: str) -> str:
    """A skill's identity: its source and its folder's path there (`.` for the root itself)."""
    return f"{source_id}:{path or '.'}"


def _source_changed(
    services: Services, deadline: Deadline, content: SourceChanged
) -> dict[str, object]:
    graph = services.graph
    root = check_root(Path(content.root or _known_root(graph, content.source_id)))
    # What appears while we look has a higher number, and is not withdrawn by what we saw before.
    looked = graph.take_seqs(1)[0]
    source = Source(content.source_id, "directory", str(root))
    if content.paths:
        graph.put_source(source)
        changed, gone, found = _changed_below(services, root, content)
    else:
        found = scan(root, "", services.settings.limits)
        # A folder that never held a skill is no source.
        if found.signatures or found.refused or source.source_id in _source_ids(graph):
            graph.put_source(source)
        cursor = graph.cursor(content.source_id)
        entries = graph.entries_under(content.source_id, "")
        known = {entry.path for entry in entries if entry.state is not State.REMOVED}
        failed = {entry.path for entry in entries if entry.state is State.FAILED}
        gone = [path for path in {*cursor, *known} if _is_gone(path, found)]
        changed = [
            path
            for path, signature in found.signatures.items()
            if not signature or cursor.get(path) != signature or path in failed
        ]
    deadline.check("plan")
    seq = graph.take_seqs(1)[0]
    services.activity.note_request(seq, str(get_contextvars().get("trace_id", "")))
    _refuse(services, content.source_id, found, looked)
    removed = _withdraw(services, content.source_id, gone, looked)
    wanted = _really_changed(services, content.source_id, root, changed, deadline)
    # Requested before the cursor moves: a kill in between only repeats the work.
    for chunk in _chunks(wanted, found):
        graph.request(
            [(skill_id_of(content.source_id, path), content.source_id, path) for path in chunk],
            seq,
        )
    graph.move_cursor(content.source_id, {path: found.signatures[path] for path in changed}, gone)
    if source.source_id in _source_ids(graph):
        graph.put_source(replace(source, last_success=time.time()))
    for chunk in _chunks(wanted, found):
        services.activity.ingest(1)
        services.send(INGEST.name, [skill_id_of(content.source_id, path) for path in chunk])
    if removed:
        services.send(LINK.name, [])
    return {"found": len(found.signatures), "changed": len(wanted), "removed": removed}


def _known_root(graph: SkillGraph, source_id: str) -> str:
    for source in graph.sources():
        if source.source_id == source_id:
            return source.root
    raise PermanentError(
        f"no source {source_id!r}; `skillbus sources list` names them, and an event that gives a "
        "`root` begins one"
    )


def _source_ids(graph: SkillGraph) -> set[str]:
    return {source.source_id for source in graph.sources()}


def _changed_below(
    services: Services, root: Path, content: SourceChanged
) -> tuple[list[str], list[str], Scan]:
    """Skills that own any of the changed paths or lie below them, and those gone from there."""
    total = Scan()
    known: set[str] = set()
    for path in content.paths:
        check_inside(root, path)
        scope = path.removesuffix("SKILL.md").rstrip("/") if path.endswith("SKILL.md") else path
        owner = owning_skill(root, scope)
        start = scope if owner is None else owner
        if start in total.signatures:
            continue
        found = scan(root, start, services.settings.limits)
        total.signatures |= found.signatures
        total.sizes |= found.sizes
        total.refused |= found.refused
        total.unreadable += found.unreadable
        for below in {scope, start}:
            entries = services.graph.entries_under(content.source_id, below)
            known.update(entry.path for entry in entries if entry.state is not State.REMOVED)
    return list(total.signatures), [path for path in known if _is_gone(path, total)], total


def _is_gone(path: str, found: Scan) -> bool:
    return path not in found.signatures and path not in found.refused and found.knows(path)


def _really_changed(
    services: Services, source_id: str, root: Path, paths: Sequence[str], deadline: Deadline
) -> list[str]:
    """Drop skills that would end as they are: a touched file costs no ingest, and neither does
    one that fails for the same reason as before."""
    ids = {skill_id_of(source_id, path): path for path in paths}
    settled = {
        entry.skill_id: entry
        for entry in services.graph.entries(list(ids))
        if entry.state in (State.PUBLISHED, State.FAILED) and entry.wanted_seq <= entry.seq
    }
    wanted = []
    for skill_id, path in ids.items():
        deadline.check("plan")
        entry = settled.get(skill_id)
        if entry is None or not _ends_the_same(root, entry, services.settings.limits):
            wanted.append(path)
    return wanted


def _ends_the_same(root: Path, entry: Entry, limits: LimitSettings) -> bool:
    try:
        folder = read_folder(root, entry.path, limits)
        if entry.state is State.PUBLISHED:
            return folder.content_hash == entry.content_hash
        parse_skill(entry.path, folder.content, folder.files, parse_limits(limits))
    except TransientError:
        return False
    except PermanentError as error:
        return str(error) == entry.reason
    return False


def _refuse(services: Services, source_id: str, found: Scan, seq: int) -> None:
    failures = [
        (RevisionKey(skill_id_of(source_id, path), seq), source_id, path, reason)
        for path, reason in found.refused.items()
    ]
    if failures:
        services.graph.fail(failures)


def _withdraw(services: Services, source_id: str, paths: Iterable[str], seq: int) -> int:
    keys = [RevisionKey(skill_id_of(source_id, path), seq) for path in paths]
    return len(services.graph.remove(keys)) if keys else 0


def _skills_removed(services: Services, skill_ids: Sequence[str]) -> dict[str, object]:
    known = [entry.skill_id for entry in services.graph.entries(skill_ids)]
    if not known:
        raise PermanentError(f"no skill {', '.join(skill_ids)} in the catalog")
    seq = services.graph.take_seqs(1)[0]
    removed = services.graph.remove([RevisionKey(skill_id, seq) for skill_id in known])
    services.send(LINK.name, [])
    return {"removed": len(removed)}


def _source_removed(services: Services, source_id: str) -> dict[str, object]:
    if source_id not in _source_ids(services.graph):
        raise PermanentError(f"no source {source_id!r}; `skillbus sources list` names them")
    entries = services.graph.entries_under(source_id, "")
    seq = services.graph.take_seqs(1)[0]
    removed = services.graph.remove([RevisionKey(entry.skill_id, seq) for entry in entries])
    services.graph.drop_source(source_id)
    services.send(LINK.name, [])
    return {"removed": len(removed)}


def _chunks(paths: Sequence[str], found: Scan) -> Iterable[list[str]]:
    """Paths in batches of about the same work."""
    chunk: list[str] = []
    size = 0
    for path in paths:
        chunk.append(path)
        size += found.sizes.get(path, 0)
        if size >= _CHUNK_BYTES or len(chunk) >= _CHUNK_SKILLS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
