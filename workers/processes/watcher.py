"""The file watcher: submits settled changes below synced directories as events."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import takewhile
from pathlib import Path, PurePosixPath

import structlog
from watchdog import events
from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver
from watchdog.observers.polling import PollingObserverVFS

from config.errors import SkillbusError
from graph.records import Source
from skills.events import SourceChanged
from tasks.sources.directory import identify_folder
from tasks.sources.folder_rules import SKIPPED_FOLDERS, escape_non_utf8
from tasks.sources.readers import find_source
from workers.backend.protocol import Backend

log = structlog.get_logger()

ORIGIN = "skillbus/watcher"
_TICK_SECONDS = 0.05
_REFRESH_SECONDS = 1.0
_MAX_PATHS = 200
_MAX_SETTLE_SECONDS = 5.0
_WATCHED_EVENTS: list[type[FileSystemEvent]] = [
    events.DirCreatedEvent,
    events.DirDeletedEvent,
    events.DirMovedEvent,
    events.FileCreatedEvent,
    events.FileDeletedEvent,
    events.FileModifiedEvent,
    events.FileMovedEvent,
]
"""Events to subscribe to. Reading a file causes none of them: reads of a large library would fill
the kernel's queue, which then drops changes."""


class _PendingChanges(FileSystemEventHandler):
    """Changed paths of one source, collected until they have settled."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._lock = threading.Lock()
        self._paths: set[str] = set()
        self._first = 0.0
        self._last = 0.0
        self.has_new_folders = False

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Record the paths of an event; for a move, source and destination."""
        if isinstance(event, events.DirCreatedEvent | events.DirMovedEvent):
            self.has_new_folders = True
        for path in (event.src_path, event.dest_path):
            if path:
                self.add_path(os.fsdecode(path))

    def add_path(self, path: str) -> None:
        """Record an absolute path that changed, unless it is outside the source
        or in a skipped folder.

        Events hold UTF-8 only: for another name, the path of its folder is recorded.
        """
        try:
            relative = Path(path).relative_to(self.source.root)
        except ValueError:
            return
        parts = PurePosixPath(relative.as_posix()).parts
        if SKIPPED_FOLDERS.intersection(parts):
            return
        readable = takewhile(lambda part: escape_non_utf8(part) == part, parts)
        now = time.monotonic()
        with self._lock:
            if not self._paths:
                self._first = now
            self._last = now
            self._paths.add("/".join(readable))

    def take_settled(self, settle_seconds: float) -> set[str]:
        """Remove and return the collected paths; none while they are still changing.

        They have settled `settle_seconds` after the last change, or 5 s after the first one.
        """
        now = time.monotonic()
        with self._lock:
            waiting = now - self._last < settle_seconds and now - self._first < _MAX_SETTLE_SECONDS
            if not self._paths or waiting:
                return set()
            taken, self._paths = self._paths, set()
            return taken


class Watcher:
    """Watches every directory source of the catalog, including new ones; a context manager.

    Polls a source whose file notifications fail (inotify limit, network folder). A missing root
    removes no skills; it is rescanned when it is back. A root that was replaced is watched anew.
    Every source is also rescanned at a regular interval, for changes whose notification was lost.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._settings = backend.settings.watch
        self._pending: dict[str, _PendingChanges] = {}
        self._observers: dict[str, BaseObserver] = {}
        self._identities: dict[str, tuple[int, int] | None] = {}
        """Identity of each watched root: notifications follow a folder, not its path."""
        self._missing: set[str] = set()
        self._next_rescan: dict[str, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="skillbus-watcher", daemon=True)

    def __enter__(self) -> Watcher:
        """Start watching."""
        self._refresh_sources()
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Stop watching."""
        self._stop.set()
        self._thread.join()
        for observer in self._observers.values():
            observer.stop()
            observer.join()

    def wait(self) -> None:
        """Block until interrupted."""
        while not self._stop.wait(0.5):
            pass

    def _loop(self) -> None:
        refreshed = time.monotonic()
        while not self._stop.wait(_TICK_SECONDS):
            if time.monotonic() - refreshed > _REFRESH_SECONDS:
                try:
                    self._refresh_sources()
                except SkillbusError as error:
                    log.warning("sources not read", reason=str(error))
                refreshed = time.monotonic()
            for pending in list(self._pending.values()):
                paths = pending.take_settled(self._settings.settle_milliseconds / 1000)
                if paths:
                    self._submit(pending, paths)

    def _submit(self, pending: _PendingChanges, paths: set[str]) -> None:
        source_id = pending.source.source_id
        is_full_sync = len(paths) > _MAX_PATHS or "" in paths
        # Without a root, as a root would add the source again if it is being removed.
        event = SourceChanged(
            source_id=source_id, paths=() if is_full_sync else tuple(sorted(paths))
        )
        try:
            if find_source(self._backend.graph.list_sources(), source_id) is not None:
                self._backend.submit(event, ORIGIN)
        except SkillbusError as error:
            log.warning("change deferred", reason=str(error))
            for path in paths:
                pending.add_path(str(Path(pending.source.root, path)))

    def _refresh_sources(self) -> None:
        sources = {
            source.source_id: source
            for source in self._backend.graph.list_sources()
            if source.kind == "directory"
        }
        for source_id in [name for name in self._observers if name not in sources]:
            self._unwatch(source_id)
        for source_id, source in sources.items():
            identity = identify_folder(Path(source.root))
            if source_id in self._observers and not self._is_watching(source_id, identity):
                self._unwatch(source_id)
            if source_id not in self._observers and not self._watch_root(source, identity):
                continue
            if time.monotonic() >= self._next_rescan[source_id]:
                self._next_rescan[source_id] = time.monotonic() + self._settings.rescan_seconds
                self._pending[source_id].add_path(source.root)

    def _watch_root(self, source: Source, identity: tuple[int, int] | None) -> bool:
        """Watch a source with the identity of its root; return False if the root is missing."""
        source_id = source.source_id
        watched = False
        if identity is not None:
            with suppress(OSError):  # it went meanwhile
                self._watch(source)
                watched = True
        if not watched:
            if source_id not in self._missing:
                log.warning("source root missing", source=source_id, root=source.root)
            self._missing.add(source_id)
            return False
        self._identities[source_id] = identity
        self._missing.discard(source_id)
        self._next_rescan[source_id] = 0.0  # finds changes made before the watch started
        return True

    def _is_watching(self, source_id: str, identity: tuple[int, int] | None) -> bool:
        """Return whether the watch of a source is one of the folder that is its root now, with all
        its subfolders.

        The watch of a deleted folder ends; a new folder may have the same identity.
        """
        observer, pending = self._observers[source_id], self._pending[source_id]
        if self._identities[source_id] != identity:
            return False
        if pending.has_new_folders and not isinstance(observer, PollingObserverVFS):
            pending.has_new_folders = False
            try:
                _check_watches_left(observer)
            except OSError:
                return False
        return all(one.is_alive() for one in observer.emitters)

    def _watch(self, source: Source) -> None:
        pending = _PendingChanges(source)
        observer: BaseObserver | None = None
        if not self._settings.force_polling:
            try:
                observer = _start(Observer(), pending)
            except OSError as error:
                log.warning(
                    "file notifications unavailable, polling",
                    source=source.source_id,
                    reason=str(error),
                )
        if observer is None:
            observer = _start(_make_polling_observer(self._settings.poll_seconds), pending)
        self._pending[source.source_id] = pending
        self._observers[source.source_id] = observer

    def _unwatch(self, source_id: str) -> None:
        observer = self._observers.pop(source_id, None)
        self._pending.pop(source_id, None)
        if observer is not None:
            observer.stop()
            observer.join()


def _start(observer: BaseObserver, pending: _PendingChanges) -> BaseObserver:
    """Watch the root of a source with all its subfolders; raises OSError if that fails."""
    root = pending.source.root
    try:
        observer.schedule(pending, root, recursive=True, event_filter=_WATCHED_EVENTS)
        observer.start()
        if not isinstance(observer, PollingObserverVFS):
            _check_watches_left(observer)
    except OSError:
        observer.stop()
        raise
    return observer


def _make_polling_observer(seconds: float) -> BaseObserver:
    """Return an observer that polls, but for skipped folders.

    It does not follow links: a walk through two that lead to a folder above them would not end.
    """
    return PollingObserverVFS(os.lstat, _list_entries, polling_interval=seconds)


def _list_entries(folder: str | None) -> Iterator[os.DirEntry[str]]:
    return (entry for entry in os.scandir(folder) if entry.name not in SKIPPED_FOLDERS)


def _check_watches_left(observer: BaseObserver) -> None:
    """Raise OSError if the kernel has no watch left for this user.

    watchdog raises no error for a subfolder that it cannot watch, only for the folder it is given:
    here one outside of any source, which needs a watch of its own. Only Linux has such a limit.
    """
    if sys.platform == "linux":
        observer.unschedule(observer.schedule(FileSystemEventHandler(), os.sep))
