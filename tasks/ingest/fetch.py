"""Fetch git sources, and sync the catalog with their newest commits.

Remotes may be slow, faulty or unreachable: they are fetched concurrently, at most one fetch per
host, each with its own time limit. A failed fetch removes no skills; its reason is stored with the
source and shown in `status`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import structlog
from structlog.contextvars import bound_contextvars

from config.errors import PermanentError, TransientError, UsageError
from graph.entry_filter import EntryFilter
from graph.records import SkillState, Source
from skills.events import (
    SkillRemoved,
    SourceChanged,
    SourceRemoved,
    get_changed_source,
)
from tasks.ingest.coalesce import MAX_EVENTS, EventBatch, collect_batches
from tasks.ingest.diff import sync_source
from tasks.ingest.event_outcome import fail_batch, fail_events_with_reason, record_outcome
from tasks.ingest.next_tasks import needs_fetch, send_fetch, send_plan
from tasks.metrics_recorder import TaskOutcome
from tasks.policies import FETCH, Deadline
from tasks.record_work import record_batch
from tasks.services import Services
from tasks.sources.git.fetch import RefNotFoundError
from tasks.sources.git.mirror import (
    Mirror,
    check_git_source,
    delete_mirror,
    delete_orphaned_mirrors,
)
from tasks.sources.git.reader import open_git_reader
from tasks.sources.readers import find_source

log = structlog.get_logger()

_INTERRUPTED = "the last fetch was interrupted before the library was synced"
_LOCK_POLL_SECONDS = 0.02
_POLL_SECONDS = 0.25
_MAX_FAILED = 1_000
_RETRY_PAUSES_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Pauses between fetches from a host that does not serve the commit of its webhook yet."""
_RESERVED_SECONDS = 60.0
"""Part of a task's time that is reserved for the work after the last fetch."""


def fetch(services: Services, deadline: Deadline, event_ids: Sequence[str]) -> dict[str, object]:
    """Carry out these and all other open events of git sources, each recorded as done or failed.

    One task of all processes fetches at a time; events that are sent meanwhile are included.
    """
    done = 0
    seen: set[str] = set()
    while True:
        with services.coordinator.try_lock("fetch") as acquired:
            if not acquired:
                break  # the task that holds the lock checks for open events again when it is done
            done += _FetchRun(services, deadline, seen).run(event_ids)
        if not _has_unseen_events(services, seen):
            break
    return {"events": done}


def _has_unseen_events(services: Services, seen: set[str]) -> bool:
    return not seen.issuperset(services.journal.list_open_jobs("event", MAX_EVENTS))


@dataclass(frozen=True, slots=True)
class _Fetch:
    """A running fetch. known: the source in the catalog, None for a new source."""

    batch: EventBatch
    known: Source | None
    source: Source
    started: float


class _FetchRun:
    """Fetches all open batches of git sources, including those that come during the run.

    Only the transfers run in threads; the catalog is synced in the task's thread, one source after
    another. seen: filled with the ids of the events that were read.
    """

    def __init__(self, services: Services, deadline: Deadline, seen: set[str]) -> None:
        self._services = services
        self._deadline = deadline
        self._seen = seen
        self._started_ids: set[str] = set()
        self._waiting: list[EventBatch] = []
        self._removals: dict[str, list[str]] = {}
        """Maps the first event of a batch to the ids of earlier open removals of its source."""
        self._running: dict[Future[str], _Fetch] = {}
        self._retries: dict[str, int] = {}
        self._retry_at: dict[str, float] = {}
        self._finished = threading.Event()
        self._done = 0

    def run(self, event_ids: Sequence[str]) -> int:
        """Carry out all open events of git sources; returns their number."""
        services = self._services
        self._collect_batches(event_ids)
        with ThreadPoolExecutor(services.settings.git.at_once, "skillbus-fetch") as pool:
            try:
                while self._waiting or self._running:
                    self._start_fetches(pool)
                    if self._running:
                        ended, _ = wait(self._running, _POLL_SECONDS, FIRST_COMPLETED)
                        for one in ended:
                            self._finish_fetch(self._running.pop(one), one)
                    elif services.stopping.wait(_POLL_SECONDS):
                        break
                    self._collect_batches(())
            finally:
                self._finished.set()
        delete_orphaned_mirrors(
            [source.source_id for source in services.graph.list_sources()], services.settings
        )
        return self._done

    def _collect_batches(self, event_ids: Sequence[str]) -> None:
        """Coalesce all open events whose fetch has not started, if new events have arrived.

        event_ids: ids sent to the task; events that need no fetch are forwarded to `plan`.
        """
        if not event_ids and not _has_unseen_events(self._services, self._seen):
            return
        batches, invalid = collect_batches(
            self._services, self._deadline, event_ids, self._started_ids
        )
        for event_id, reason in invalid:
            fail_events_with_reason(self._services, [event_id], reason)
        sources = self._services.graph.list_sources()
        self._seen.update(event_ids, (event_id for event_id, _ in invalid))
        self._waiting, self._removals = [], {}
        removals: dict[str, list[str]] = {}
        for batch in batches:
            self._seen.update(batch.event_ids)
            source_id = get_changed_source(batch.content)
            if needs_fetch(batch.content, lambda: sources):
                self._waiting.append(batch)
                self._removals[batch.event_ids[0]] = removals.get(source_id, [])
            elif isinstance(batch.content, SkillRemoved | SourceRemoved):
                removals[source_id] = [*removals.get(source_id, []), *batch.event_ids]
            else:
                self._started_ids.update(batch.event_ids)
                if not set(event_ids).isdisjoint(batch.event_ids):
                    send_plan(self._services, batch.event_ids)

    # -- start of a fetch
    def _start_fetches(self, pool: ThreadPoolExecutor) -> None:
        """Start fetches up to the limit `git.at_once`, at most one per host."""
        if not self._waiting:
            return
        settings = self._services.settings.git
        known = {source.source_id: source for source in self._services.graph.list_sources()}
        busy = {_host(one.source.root) for one in self._running.values()}
        for batch in list(self._waiting):
            content = batch.content
            if not isinstance(content, SourceChanged) or self._is_backing_off(content):
                continue
            if self._deadline.remaining() < settings.seconds + _RESERVED_SECONDS:
                send_fetch(self._services, batch.event_ids)
                self._mark_started(batch)
                continue
            if self._awaits_removal(batch):
                continue
            source = known.get(content.source_id)
            host = _host(content.root or (source.root if source is not None else ""))
            if host in busy or len(busy) >= settings.at_once:
                continue
            self._mark_started(batch)
            if (one := self._prepare_fetch(batch, content, source)) is not None:
                busy.add(host)
                with bound_contextvars(trace_id=batch.trace_ids[0]):
                    future = pool.submit(copy_context().run, self._transfer, one)
                self._running[future] = one

    def _is_backing_off(self, content: SourceChanged) -> bool:
        awaited = content.pushed.after if content.pushed is not None else ""
        return self._retry_at.get(awaited, 0.0) > time.monotonic()

    def _awaits_removal(self, batch: EventBatch) -> bool:
        """Return whether `plan` has yet to remove the source, or a skill of it, before it."""
        removals = self._removals.get(batch.event_ids[0])
        if not removals:
            return False
        states = self._services.journal.get_job_states(removals)
        return any(state == "accepted" for state, _ in states.values())

    def _mark_started(self, batch: EventBatch) -> None:
        self._waiting.remove(batch)
        self._started_ids.update(batch.event_ids)

    def _prepare_fetch(
        self, batch: EventBatch, content: SourceChanged, known: Source | None
    ) -> _Fetch | None:
        """Return the fetch for a batch; None, with its events failed, if it is not allowed."""
        try:
            if not batch.may_set_git:  # git options choose the repository and the credential file
                raise UsageError(
                    "git sources are added by `skillbus sources add` or POST /v1/sources"
                )
            source = resolve_source(known, content)
        except PermanentError as error:
            fail_batch(self._services, batch, error)
            return None
        return _Fetch(batch, known, source, time.time())

    def _transfer(self, one: _Fetch) -> str:
        """Fetch into the mirror; returns the newest commit. Runs in a thread.

        Raises PermanentError for any failure of the remote, since the next poll tries again.
        """
        services, source = self._services, one.source
        started = time.monotonic()

        def stopped() -> bool:
            return self._finished.is_set() or services.stopping.is_set()

        try:
            with one.batch.start_span("fetch transfer"):
                check_git_source(source, services.settings)
                commit = Mirror(source, services.settings).fetch(stopped)
        except TransientError as error:
            if stopped():
                raise
            raise PermanentError(str(error)) from None
        seconds = round(time.monotonic() - started, 3)
        log.info("source fetched", source=source.source_id, commit=commit, seconds=seconds)
        return commit

    # -- end of a fetch
    def _finish_fetch(self, one: _Fetch, transferred: Future[str]) -> None:
        """Sync the catalog with the fetched commit, and record the events."""
        services, batch = self._services, one.batch
        with bound_contextvars(trace_id=batch.trace_ids[0]), batch.start_span("fetch events"):
            failure: Exception | None = None
            try:
                commit = transferred.result()
                if self._retry_if_not_pushed(one, commit):
                    return
                outcome = _sync_fetched(services, self._deadline, one, commit)
            except TransientError:
                raise  # from a store: failures of the remote are PermanentErrors
            except PermanentError as error:
                if isinstance(error, RefNotFoundError) and self._retry_if_not_pushed(one, ""):
                    return
                failure = error
                _record_failure(services, self._deadline, one, str(error))
            except Exception as error:  # fails only this fetch
                failure = error
            if failure is None:
                record_outcome(services, batch, outcome)
            else:
                fail_batch(services, batch, failure, one.source.source_id)
            ended: TaskOutcome = "done" if failure is None else "failed"
            record_batch(services, FETCH, batch, one.started, ended, failure)
            self._done += len(batch.event_ids)

    def _retry_if_not_pushed(self, one: _Fetch, commit: str) -> bool:
        """Schedule another fetch if the host does not serve the announced commit yet.

        commit: the fetched commit, "" if the host shows no such branch. Returns False if the commit
        is to be used, as also after the last of several fetches.
        """
        content = one.batch.content
        pushed = content.pushed if isinstance(content, SourceChanged) else None
        if pushed is None or commit not in ("", pushed.before, one.source.commit):
            return False  # differs from the commit before the push, so it is later
        if commit == pushed.after:
            return False
        # A known commit was followed by another push, unless this one goes back to it.
        mirror = Mirror(one.source, self._services.settings)
        if commit not in ("", pushed.before) and mirror.has_commit(pushed.after):
            return False
        retries = self._retries.get(pushed.after, 0)
        if retries == len(_RETRY_PAUSES_SECONDS):
            log.warning("pushed commit not available yet", pushed=pushed.after, commit=commit)
            return False
        self._retries[pushed.after] = retries + 1
        self._retry_at[pushed.after] = time.monotonic() + _RETRY_PAUSES_SECONDS[retries]
        self._started_ids.difference_update(one.batch.event_ids)
        self._waiting.append(one.batch)
        return True


def _host(root: str) -> str:
    return urlsplit(root).hostname or ""


def _sync_fetched(
    services: Services, deadline: Deadline, one: _Fetch, commit: str
) -> dict[str, object]:
    """Sync the catalog with a commit; skills below the event's `paths` are read in any case, and so
    are failed skills."""
    content = one.batch.content
    paths = content.paths if isinstance(content, SourceChanged) else ()
    known, now, since = one.known, time.time(), one.batch.accepted
    source = replace(one.source, commit=commit, last_attempt=now)
    same = known is not None and replace(source, last_attempt=known.last_attempt) == known
    with _plan_lock(services, deadline):
        if known and find_source(services.graph.list_sources(), known.source_id) is None:
            raise PermanentError("the source was removed meanwhile")
        if same and not paths:
            signatures = services.graph.get_file_signatures(source.source_id)
            paths = _list_failed(services, source.source_id, signatures)
            if not paths:
                services.graph.save_source(replace(source, last_success=now))
                return {"found": len(signatures), "changed": 0, "removed": 0, "commit": commit}
        outcome: dict[str, object] = {}
        with open_git_reader(source, services.settings) as reader:
            if known is None and not reader.scan("").signatures:
                raise PermanentError("no SKILL.md in it; name another branch or folder (--path)")
            # Saved before ingest is requested, since ingest reads at the commit in the catalog.
            unfinished = replace(source, last_error=_INTERRUPTED)
            services.graph.save_source(unfinished)
            if not same:
                outcome = sync_source(services, deadline, unfinished, reader, since=since)
            if paths:
                named = sync_source(services, deadline, unfinished, reader, paths, since=since)
                outcome = outcome or named
        services.graph.save_source(replace(source, last_success=time.time()))
        return outcome | {"commit": commit}


def _list_failed(services: Services, source_id: str, found: Collection[str]) -> tuple[str, ...]:
    """Return the paths of failed skills that the commit holds: a limit may have been raised."""
    failed = EntryFilter(source_id=source_id, state=SkillState.FAILED)
    entries = services.graph.list_entries(failed, "", _MAX_FAILED)
    return tuple(entry.path for entry in entries if entry.path in found)


@contextmanager
def _plan_lock(services: Services, deadline: Deadline) -> Iterator[None]:
    """Hold the lock of `plan`; raises DeadlineExceededError if the lock is not free in time."""
    while True:
        with services.coordinator.try_lock("plan") as acquired:
            if acquired:
                yield
                break
        deadline.check("fetch")
        services.stopping.wait(_LOCK_POLL_SECONDS)
    # Tasks for events that arrived meanwhile did not get the lock.
    waiting = services.journal.list_open_jobs("event", 1)
    if waiting:
        send_plan(services, waiting)


def resolve_source(known: Source | None, content: SourceChanged) -> Source:
    """Return the source that an event defines.

    Raises UsageError if the catalog has a different source under its id.
    """
    if known is not None and known.kind != "git":
        raise UsageError(f"source {known.source_id} is already {known.kind} {known.root}")
    root = content.root or (known.root if known is not None else "")
    if known is not None and root != known.root:
        raise UsageError(
            f"source {known.source_id} is already {known.root}: choose another id, or "
            f"`skillbus sources remove {known.source_id}` first"
        )
    source = known or Source(content.source_id, "git", root)
    source = replace(source, last_error="")
    return source if content.git is None else replace(source, **dict(content.git))


def _record_failure(services: Services, deadline: Deadline, one: _Fetch, reason: str) -> None:
    """Store with a source why its fetch failed; if the source is new, delete the mirror instead."""
    known = one.known
    if known is None:
        delete_mirror(one.source.source_id, services.settings)
        return
    with _plan_lock(services, deadline):  # `plan` removes sources
        if find_source(services.graph.list_sources(), known.source_id) is not None:
            failed = replace(known, last_attempt=one.started, last_error=reason)
            services.graph.save_source(failed)
