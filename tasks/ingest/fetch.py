"""Fetch: git sources, from the remote's newest commit to the skills that need ingest.

Remotes may be slow, wrong or away: they are asked side by side, one fetch a host, each within its
own time. Whatever goes wrong removes nothing; it is kept with the source and told in `status`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import structlog
from structlog.contextvars import bound_contextvars

from config.errors import PermanentError, TransientError, UsageError
from graph.protocol import Source
from skills.events import GATEWAY_SOURCE, SourceChanged
from tasks.ingest.coalesce import EventBatch, collect_batches
from tasks.ingest.diff import sync_source
from tasks.ingest.plan import fail_events, fail_events_with_reason, needs_fetch, record_outcome
from tasks.policies import FETCH, PLAN, Deadline
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

_HALF_DONE = "the last fetch was interrupted before the library was in step"
_TURN_SECONDS = 0.02
_LOOK_SECONDS = 0.25
_MAX_EVENTS = 2_000
_RETRY_PAUSES_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds until a host is asked again that does not show yet what it has told of."""
_RESERVED_SECONDS = 60.0
"""Kept of a task's time for what comes after the last fetch."""


def fetch(services: Services, deadline: Deadline, event_ids: Sequence[str]) -> dict[str, object]:
    """Carry out the open events of git sources, each recorded as done or failed.

    One task fetches at a time, for all: whoever else is sent leaves its events to that one.
    """
    done = 0
    seen: set[str] = set()
    while True:
        with services.coordinator.try_lock("fetch") as acquired:
            if not acquired:
                break  # the other one looks again once it is done
            done += _FetchRun(services, deadline, seen).run(event_ids)
        if not _has_unseen_events(services, seen):
            break
    return {"events": done}


def _has_unseen_events(services: Services, seen: set[str]) -> bool:
    return not seen.issuperset(services.journal.list_open_jobs("event", _MAX_EVENTS))


@dataclass(frozen=True, slots=True)
class _Fetch:
    """A fetch under way. known: the source as the catalog has it, None for a new one."""

    batch: EventBatch
    known: Source | None
    source: Source
    started: float


class _FetchRun:
    """Fetches of all open orders, of those too that come meanwhile.

    Only the transfers run in threads: what was fetched is followed here, one after the other.
    `seen` takes the events that were looked at.
    """

    def __init__(self, services: Services, deadline: Deadline, seen: set[str]) -> None:
        self._services = services
        self._deadline = deadline
        self._seen = seen
        self._started_ids: set[str] = set()
        self._waiting: list[EventBatch] = []
        self._under_way: dict[Future[str], _Fetch] = {}
        self._retries: dict[str, int] = {}
        self._retry_at: dict[str, float] = {}
        self._finished = threading.Event()
        self._done = 0

    def run(self, event_ids: Sequence[str]) -> int:
        """Carry out what is open; returns how many events that were."""
        services = self._services
        self._collect_batches(event_ids)
        with ThreadPoolExecutor(services.settings.git.at_once, "skillbus-fetch") as pool:
            try:
                while self._waiting or self._under_way:
                    self._start_fetches(pool)
                    if self._under_way:
                        ended, _ = wait(self._under_way, _LOOK_SECONDS, FIRST_COMPLETED)
                        for one in ended:
                            self._finish_fetch(self._under_way.pop(one), one)
                    elif services.stopping.wait(_LOOK_SECONDS):
                        break
                    self._collect_batches(())
            finally:
                self._finished.set()
        delete_orphaned_mirrors(
            [source.source_id for source in services.graph.list_sources()], services.settings
        )
        return self._done

    def _collect_batches(self, event_ids: Sequence[str]) -> None:
        """Merge what is open and not begun into orders, where anything has come."""
        if not event_ids and not _has_unseen_events(self._services, self._seen):
            return
        batches, refused = collect_batches(
            self._services, self._deadline, event_ids, self._started_ids
        )
        sources = self._services.graph.list_sources()
        self._seen.update(event_ids, (event_id for event_id, _ in refused))
        self._waiting = []
        for batch in batches:
            self._seen.update(batch.event_ids)
            if needs_fetch(batch.content, lambda: sources):
                self._waiting.append(batch)
            else:
                self._started_ids.update(batch.event_ids)

    # -- the beginning of a fetch
    def _start_fetches(self, pool: ThreadPoolExecutor) -> None:
        """Begin what can be begun: one fetch a host, so that a slow one holds up no other."""
        if not self._waiting:
            return
        settings = self._services.settings.git
        known = {source.source_id: source for source in self._services.graph.list_sources()}
        busy = {_host(one.source.root) for one in self._under_way.values()}
        for batch in list(self._waiting):
            content = batch.content
            if not isinstance(content, SourceChanged) or self._is_backing_off(content):
                continue
            if self._deadline.remaining() < settings.seconds + _RESERVED_SECONDS:
                self._services.send_task(FETCH.name, batch.event_ids)
                self._mark_started(batch)
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
                self._under_way[future] = one

    def _is_backing_off(self, content: SourceChanged) -> bool:
        awaited = content.pushed.after if content.pushed is not None else ""
        return self._retry_at.get(awaited, 0.0) > time.monotonic()

    def _mark_started(self, batch: EventBatch) -> None:
        self._waiting.remove(batch)
        self._started_ids.update(batch.event_ids)

    def _prepare_fetch(
        self, batch: EventBatch, content: SourceChanged, known: Source | None
    ) -> _Fetch | None:
        """The fetch that an order asks for, None where it may not; that is recorded."""
        try:
            _check_owners(self._services, batch)
            source = resolve_source(known, content)
        except PermanentError as error:
            self._fail(batch, str(error))
            return None
        return _Fetch(batch, known, source, time.time())

    def _transfer(self, one: _Fetch) -> str:
        """The newest commit, fetched; raises PermanentError when the remote fails in any way, since
        the next poll tries again. Runs in a thread."""
        services, source = self._services, one.source
        started = time.monotonic()

        def stopped() -> bool:
            return self._finished.is_set() or services.stopping.is_set()

        try:
            check_git_source(source, services.settings)
            commit = Mirror(source, services.settings).fetch(stopped)
        except TransientError as error:
            if stopped():
                raise
            raise PermanentError(str(error)) from None
        seconds = round(time.monotonic() - started, 3)
        log.info("fetched", source=source.source_id, commit=commit, seconds=seconds)
        return commit

    # -- its end
    def _finish_fetch(self, one: _Fetch, transferred: Future[str]) -> None:
        """Bring the catalog in step with what was fetched, and record the events."""
        services, batch = self._services, one.batch
        with bound_contextvars(trace_id=batch.trace_ids[0]):
            try:
                commit = transferred.result()
                if self._retry_if_not_pushed(one, commit):
                    return
                outcome = _sync_fetched(services, self._deadline, one, commit)
            except TransientError:
                raise  # of a store: what fails at the remote is no such error
            except PermanentError as error:
                if isinstance(error, RefNotFoundError) and self._retry_if_not_pushed(one, ""):
                    return
                _record_failure(services, one, str(error))
                self._fail(batch, f"{one.source.source_id}: {error}")
            except Exception as error:  # nobody else may suffer from what nothing was made for
                log.exception("event failed unexpectedly", event_ids=batch.event_ids[:10])
                fail_events(services, batch.event_ids, error)
            else:
                record_outcome(services, batch, outcome)
                log.info("event carried out", events=len(batch.event_ids), **outcome)
            self._done += len(batch.event_ids)

    def _fail(self, batch: EventBatch, reason: str) -> None:
        log.warning("event failed", event_ids=batch.event_ids[:10], reason=reason)
        fail_events_with_reason(self._services, batch.event_ids, reason)

    def _retry_if_not_pushed(self, one: _Fetch, commit: str) -> bool:
        """Whether the host shows what was there before a push that it has told of; then it is
        asked again, some times. commit: "" where it shows no such branch."""
        content = one.batch.content
        pushed = content.pushed if isinstance(content, SourceChanged) else None
        if pushed is None or commit not in ("", pushed.before, one.source.commit):
            return False  # another commit than before: the branch moved on
        mirror = Mirror(one.source, self._services.settings)
        if commit == pushed.after or mirror.has_commit(pushed.after):
            return False
        looks = self._retries.get(pushed.after, 0)
        if looks == len(_RETRY_PAUSES_SECONDS):
            log.warning("what was pushed is not served", pushed=pushed.after, commit=commit)
            return False
        self._retries[pushed.after] = looks + 1
        self._retry_at[pushed.after] = time.monotonic() + _RETRY_PAUSES_SECONDS[looks]
        self._started_ids.difference_update(one.batch.event_ids)
        self._waiting.append(one.batch)
        return True


def _host(root: str) -> str:
    return urlsplit(root).hostname or ""


def _check_owners(services: Services, batch: EventBatch) -> None:
    """Raise UsageError where a token says what is fetched, and with which credential file.

    Of tokens only admins may, and the gateway alone knows who is one.
    """
    for event_id in batch.event_ids:
        event = services.journal.get_job(event_id).event
        content = event.parse_data()
        if event.source == GATEWAY_SOURCE or not event.owner:
            continue
        if isinstance(content, SourceChanged) and content.git is not None:
            raise UsageError("git sources are added by `skillbus sources add` or POST /v1/sources")


def _sync_fetched(
    services: Services, deadline: Deadline, one: _Fetch, commit: str
) -> dict[str, object]:
    """Bring the catalog in step with a commit, and look again at what was named."""
    content = one.batch.content
    paths = content.paths if isinstance(content, SourceChanged) else ()
    known, now = one.known, time.time()
    source = replace(one.source, commit=commit, last_attempt=now)
    same = known is not None and replace(source, last_attempt=known.last_attempt) == known
    with _plan_lock(services, deadline):
        if known and find_source(services.graph.list_sources(), known.source_id) is None:
            raise PermanentError("the source was removed meanwhile")
        if same and not paths:
            services.graph.save_source(replace(source, last_success=now))
            found = len(services.graph.get_file_signatures(source.source_id))
            return {"found": found, "changed": 0, "removed": 0, "commit": commit}
        outcome: dict[str, object] = {}
        with open_git_reader(source, services.settings) as reader:
            if known is None and not reader.scan("").signatures:
                raise PermanentError("no SKILL.md in it; name another branch or folder (--path)")
            # Ingest reads at the commit of the catalog: it stands there before it is asked for.
            begun = replace(source, last_error=_HALF_DONE)
            services.graph.save_source(begun)
            if not same:
                outcome = sync_source(services, deadline, begun, reader)
            if paths:
                named = sync_source(services, deadline, begun, reader, paths)
                outcome = outcome or named
        services.graph.save_source(replace(source, last_success=time.time()))
        return outcome | {"commit": commit}


@contextmanager
def _plan_lock(services: Services, deadline: Deadline) -> Iterator[None]:
    """Nothing else plans inside the block; raises DeadlineExceededError when it never ends."""
    while True:
        with services.coordinator.try_lock("plan") as acquired:
            if acquired:
                yield
                break
        deadline.check("fetch")
        services.stopping.wait(_TURN_SECONDS)
    # What came meanwhile was turned away.
    waiting = services.journal.list_open_jobs("event", 1)
    if waiting:
        services.send_task(PLAN.name, waiting)


def resolve_source(known: Source | None, content: SourceChanged) -> Source:
    """The source that an event speaks of; raises UsageError where it contradicts the catalog."""
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


def _record_failure(services: Services, one: _Fetch, reason: str) -> None:
    """Keep with a source why it could not be fetched; a new one leaves nothing."""
    known = one.known
    if known is None:
        delete_mirror(one.source.source_id, services.settings)
    elif find_source(services.graph.list_sources(), known.source_id) is not None:
        services.graph.save_source(replace(known, last_attempt=one.started, last_error=reason))
