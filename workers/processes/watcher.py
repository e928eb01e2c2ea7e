"""The watcher: changes below synced directories become events, once they have settled."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path, PurePosixPath

import structlog
from watchdog import events
from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver
from watchdog.observers.polling import PollingObserver

from config.errors import TransientError
from graph.records import Source
from skills.events import SourceChanged
from tasks.sources.folder_rules import SKIPPED_FOLDERS
from workers.backend.protocol import Backend

log = structlog.get_logger()

ORIGIN = "skillbus/watcher"
_TICK_SECONDS = 0.05
_MAX_PATHS = 200
_MAX_WAIT_SECONDS = 5.0
_WATCHED_EVENTS: list[type[FileSystemEvent]] = [
    events.DirCreatedEvent,
    events.DirDeletedEvent,
    events.DirMovedEvent,
    events.FileCreatedEvent,
    events.FileDeletedEvent,
    events.FileModifiedEvent,
    events.FileMovedEvent,
]
"""What is asked for. Readers cause none of it: our own look at a large library would fill the
kernel's queue, which then loses changes too."""


class _PendingChanges(FileSystemEventHandler):
    """Collects changed paths of one source until they have been quiet for a while."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._lock = threading.Lock()
        self._paths: set[str] = set()
        self._first = 0.0
        self._last = 0.0

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Note what an event touched; a move touches both ends."""
        for path in (event.src_path, event.dest_path):
            if path:
                self.add_path(os.fsdecode(path))

    def add_path(self, path: str) -> None:
        """Note a changed path, absolute."""
        try:
            relative = Path(path).relative_to(self.source.root)
        except ValueError:
            return
        parts = PurePosixPath(relative.as_posix()).parts
        if SKIPPED_FOLDERS.intersection(parts):
            return
        now = time.monotonic()
        with self._lock:
            if not self._paths:
                self._first = now
            self._last = now
            self._paths.add("/".join(parts))

    def take_settled(self, settle_seconds: float) -> set[str]:
        """Paths that have settled, or have waited long enough while others kept changing."""
        now = time.monotonic()
        with self._lock:
            waiting = now - self._last < settle_seconds and now - self._first < _MAX_WAIT_SECONDS
            if not self._paths or waiting:
                return set()
            taken, self._paths = self._paths, set()
            return taken


class Watcher:
    """Watches every directory source of the catalog, new ones too; a context manager.

    Where notification does not work (a full inotify, a network folder) it polls. A root that is
    gone is waited for, and synced whole when it comes back: absence removes nothing. Now and then
    every source is looked at whole, for what notification has lost.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._settings = backend.settings.watch
        self._pending: dict[str, _PendingChanges] = {}
        self._observers: dict[str, BaseObserver] = {}
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
        looked = time.monotonic()
        while not self._stop.wait(_TICK_SECONDS):
            if time.monotonic() - looked > 1.0:
                self._refresh_sources()
                looked = time.monotonic()
            for pending in list(self._pending.values()):
                paths = pending.take_settled(self._settings.settle_milliseconds / 1000)
                if paths:
                    self._submit(pending, paths)

    def _submit(self, pending: _PendingChanges, paths: set[str]) -> None:
        whole = len(paths) > _MAX_PATHS or "" in paths
        event = SourceChanged(
            source_id=pending.source.source_id,
            root=pending.source.root,
            paths=() if whole else tuple(sorted(paths)),
        )
        try:
            self._backend.submit(event, ORIGIN)
        except TransientError as error:
            log.warning("change kept for later", reason=str(error))
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
            exists = Path(source.root).is_dir()
            if not exists and source_id not in self._missing:
                log.warning("source is away", source=source_id, root=source.root)
                self._missing.add(source_id)
                self._unwatch(source_id)
            elif exists and source_id not in self._observers:
                self._watch(source)
                self._missing.discard(source_id)
                self._next_rescan[source_id] = 0.0  # what changed before anybody watched
            if exists and time.monotonic() >= self._next_rescan[source_id]:
                self._next_rescan[source_id] = time.monotonic() + self._settings.rescan_seconds
                self._pending[source_id].add_path(source.root)

    def _watch(self, source: Source) -> None:
        pending = _PendingChanges(source)
        observer: BaseObserver = Observer()
        if self._settings.force_polling:
            observer = PollingObserver(timeout=self._settings.poll_seconds)
        try:
            observer.schedule(pending, source.root, recursive=True, event_filter=_WATCHED_EVENTS)
            observer.start()
        except OSError as error:
            log.warning(
                "no notification; polling instead", source=source.source_id, reason=str(error)
            )
            observer = PollingObserver(timeout=self._settings.poll_seconds)
            observer.schedule(pending, source.root, recursive=True, event_filter=_WATCHED_EVENTS)
            observer.start()
        self._pending[source.source_id] = pending
        self._observers[source.source_id] = observer

    def _unwatch(self, source_id: str) -> None:
        observer = self._observers.pop(source_id, None)
        self._pending.pop(source_id, None)
        if observer is not None:
            observer.stop()
            observer.join()
