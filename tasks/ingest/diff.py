"""Diff of a source and the catalog: which skills to ingest and which to remove."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

import structlog
from structlog.contextvars import get_contextvars

from config.errors import PermanentError, TransientError
from config.settings import LimitSettings
from graph.protocol import Catalog
from graph.records import CatalogEntry, SkillState, Source
from skills.events import SourceChanged
from skills.parsing.parse_skill import parse_skill
from skills.record import RevisionKey
from tasks.history.keep import withdraw
from tasks.ingest.held.reviewed import find_held_back, find_staying
from tasks.ingest.next_tasks import send_ingest, send_link
from tasks.policies import Deadline
from tasks.services import Services
from tasks.sources.directory import DirectoryReader, resolve_root, to_parse_limits
from tasks.sources.folder_rules import check_relative_path, no_skill_found
from tasks.sources.protocol import SourceReader, SourceScan
from tasks.sources.readers import ensure_source

log = structlog.get_logger()

_BATCH_BYTES = 192_000
_BATCH_SKILLS = 32
_LARGE_CHANGE, _MAX_GROWTH = 500, 4
"""Larger changes have larger batches, by a factor of one per _LARGE_CHANGE skills, at most
_MAX_GROWTH: a batch is a commit of every store, which takes as long as several skills."""


def preview_sync(
    graph: Catalog | None, content: SourceChanged, limits: LimitSettings
) -> dict[str, list[str]]:
    """Return what a sync would do: skill ids under `new`, `changed`, `removed`, `refused`. Writes
    nothing.

    graph: None for a library that does not exist yet. `refused`: skills that may not be read.
    Raises UsageError if the directory holds no skills and none would be removed.
    """
    reader = DirectoryReader(resolve_root(Path(content.root)), limits)
    found = reader.scan("")
    entries = graph.get_entries_under(content.source_id, "") if graph is not None else []
    known = {entry.path: entry for entry in entries if entry.state is not SkillState.REMOVED}
    signatures = graph.get_file_signatures(content.source_id) if graph is not None else {}
    changed = []
    for path, signature in found.signatures.items():
        if path not in known or (signature and signatures.get(path) == signature):
            continue
        try:
            same = reader.read(path).content_hash == known[path].content_hash
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
    if not found.signatures and not report["removed"]:
        raise no_skill_found(content.root)
    return {
        kind: sorted(make_skill_id(content.source_id, path) for path in paths)
        for kind, paths in report.items()
    }


def make_skill_id(source_id: str, path: str) -> str:
    """Return a skill's id: source id and path of the folder in the source, `.` for the root."""
    return f"{source_id}:{path or '.'}"


def sync_source(
    services: Services,
    deadline: Deadline,
    source: Source,
    reader: SourceReader,
    paths: Sequence[str] = (),
    *,
    since: float,
) -> dict[str, object]:
    """Update the catalog from a source: request ingest of what changed, remove what is gone.

    reader: shows the source as it is now. paths: limits the update to skills at, above or below
    these paths; empty: all. since: when the change was first known, in seconds since the epoch.
    Returns the number of skills `found`, `changed` (sent to ingest) and `removed`.
    """
    graph = services.graph
    # Allocated before the scan: a skill that appears later has a higher seq, and is not removed.
    scan_seq = graph.allocate_sequence(1)[0]
    changed, gone, found = (
        _diff_paths(graph, source, reader, paths) if paths else _diff_source(graph, source, reader)
    )
    # A folder in which no skill was ever found does not become a source.
    is_source = bool(found.signatures or found.refused) or source.source_id in get_source_ids(graph)
    if is_source:
        ensure_source(graph, source)
    deadline.check("plan")
    seq = graph.allocate_sequence(1)[0]
    trace_id = str(get_contextvars().get("trace_id", ""))
    services.coordinator.record_ingest_request(seq, trace_id, since)
    _record_refused(services, source.source_id, found, scan_seq)
    keys = [RevisionKey(make_skill_id(source.source_id, path), scan_seq) for path in gone]
    removed = len(withdraw(services, keys))
    wanted = _drop_unchanged(services, source.source_id, reader, changed, deadline)
    # Requested before the file signatures are stored: a crash in between only repeats the work.
    for chunk in _batch_paths(wanted, found):
        graph.request_ingest(
            [(make_skill_id(source.source_id, path), source.source_id, path) for path in chunk],
            seq,
        )
    graph.update_file_signatures(
        source.source_id, {path: found.signatures[path] for path in changed}, gone
    )
    if is_source:
        graph.save_source(replace(source, last_success=time.time()))
    for chunk in _batch_paths(wanted, found):
        send_ingest(services, [make_skill_id(source.source_id, path) for path in chunk])
    if removed:
        send_link(services)
    return {"found": len(found.signatures), "changed": len(wanted), "removed": removed}


def get_source_ids(graph: Catalog) -> set[str]:
    """Return the ids of the sources in the catalog."""
    return {source.source_id for source in graph.list_sources()}


def _diff_source(
    graph: Catalog, source: Source, reader: SourceReader
) -> tuple[list[str], list[str], SourceScan]:
    """Scan a whole source; return the paths of skills that changed since the last scan or failed,
    the paths of skills that are gone, and the scan."""
    found = reader.scan("")
    signatures = graph.get_file_signatures(source.source_id)
    entries = graph.get_entries_under(source.source_id, "")
    known = {entry.path for entry in entries if entry.state is not SkillState.REMOVED}
    failed = {entry.path for entry in entries if entry.state is SkillState.FAILED}
    gone = [path for path in {*signatures, *known} if _is_gone(path, found)]
    changed = [
        path
        for path, signature in found.signatures.items()
        if not signature or signatures.get(path) != signature or path in failed
    ]
    return changed, gone, found


def _diff_paths(
    graph: Catalog, source: Source, reader: SourceReader, paths: Sequence[str]
) -> tuple[list[str], list[str], SourceScan]:
    """Do as `_diff_source`, for the skills that own any of the changed paths or lie below them."""
    total = SourceScan()
    known: set[str] = set()
    scanned: set[str] = set()
    # Sorted, so that a folder is scanned before, and instead of, the folders in it.
    for scope in sorted({_scope(source, path) for path in paths}):
        owner = reader.find_owning_skill(scope)
        start = scope if owner is None else owner
        if not scanned.isdisjoint(_self_and_parents(start)):
            continue
        scanned.add(start)
        found = reader.scan(start)
        total.signatures |= found.signatures
        total.sizes |= found.sizes
        total.refused |= found.refused
        total.unreadable += found.unreadable
        entries = graph.get_entries_under(source.source_id, start)
        known.update(entry.path for entry in entries if entry.state is not SkillState.REMOVED)
    for path in sorted(total.signatures.keys() - known):
        # The files of a new skill no longer belong to the skill above it.
        outer = reader.find_owning_skill(str(PurePosixPath(path).parent)) if path else None
        if outer is not None:
            total.signatures.setdefault(outer, "")
    return list(total.signatures), [path for path in known if _is_gone(path, total)], total


def _scope(source: Source, path: str) -> str:
    """Return a changed path in normal form; for a SKILL.md, the path of its folder.

    Raises UsageError for a path that leads out of the source.
    """
    check_relative_path(path, source.root)
    parts = PurePosixPath(path).parts
    return "/".join(parts[:-1] if parts and parts[-1] == "SKILL.md" else parts)


def _self_and_parents(path: str) -> Iterator[str]:
    yield path
    while path:
        path = path.rpartition("/")[0]
        yield path


def _is_gone(path: str, found: SourceScan) -> bool:
    return path not in found.signatures and path not in found.refused and found.covers(path)


def _drop_unchanged(
    services: Services,
    source_id: str,
    reader: SourceReader,
    paths: Sequence[str],
    deadline: Deadline,
) -> list[str]:
    """Return the paths without skills that ingest would not change: published with the same
    content and none held back, or failed for the same reason as before."""
    ids = {make_skill_id(source_id, path): path for path in paths}
    settled = {
        entry.skill_id: entry
        for entry in services.graph.get_entries(list(ids))
        if entry.state in (SkillState.PUBLISHED, SkillState.FAILED) and not entry.awaits_ingest
    }
    held_back = find_held_back(services, list(settled))
    wanted = []
    for skill_id, path in ids.items():
        deadline.check("plan")
        entry = settled.get(skill_id)
        if (
            entry is None
            or skill_id in held_back
            or not _is_unchanged(reader, entry, services.settings.limits)
        ):
            wanted.append(path)
    return wanted


def _is_unchanged(reader: SourceReader, entry: CatalogEntry, limits: LimitSettings) -> bool:
    try:
        folder = reader.read(entry.path)
        if entry.state is SkillState.PUBLISHED:
            return folder.content_hash == entry.content_hash
        parse_skill(entry.path, folder.content, folder.files, to_parse_limits(limits))
    except TransientError:
        return False
    except PermanentError as error:
        return str(error) == entry.reason
    except Exception:  # a skill that failed still breaks the parser; others in the source do not
        log.exception("skill cannot be compared", skill_id=entry.skill_id)
        return entry.state is SkillState.FAILED
    return False


def _record_refused(services: Services, source_id: str, found: SourceScan, seq: int) -> None:
    """Record as failed the skills that may not be read, except those that stay at a revision."""
    refused = {make_skill_id(source_id, path): path for path in found.refused}
    if not refused:
        return
    entries = services.graph.get_entries(list(refused))
    staying = find_staying(
        services, [entry for entry in entries if entry.state is SkillState.PUBLISHED]
    )
    failures = [
        (RevisionKey(skill_id, seq), source_id, path, found.refused[path])
        for skill_id, path in refused.items()
        if skill_id not in staying
    ]
    if failures:
        services.graph.record_failures(failures)


def _batch_paths(paths: Sequence[str], found: SourceScan) -> Iterable[list[str]]:
    """Yield paths in batches of about the same work."""
    growth = min(max(len(paths) // _LARGE_CHANGE, 1), _MAX_GROWTH)
    chunk: list[str] = []
    size = 0
    for path in paths:
        chunk.append(path)
        size += found.sizes.get(path, 0)
        if size >= growth * _BATCH_BYTES or len(chunk) >= growth * _BATCH_SKILLS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
