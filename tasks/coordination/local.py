"""Coordinator of one process whose tasks run in its threads."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from structlog.contextvars import get_contextvars
from typing_extensions import override

from config.tracing import current_context
from tasks.coordination.protocol import (
    MAX_YIELD_SECONDS,
    Coordinator,
    IngestRequest,
    StalledTask,
)

_MAX_REQUESTS = 1_000


class LocalCoordinator(Coordinator):
    """A `Coordinator` for threads; its state ends with the process.

    idle: set while no query runs.
    """

    def __init__(self) -> None:
        self.task_error = ""
        self.idle = threading.Event()
        self.idle.set()
        self._lock = threading.Lock()
        self._pending: Counter[str] = Counter()
        self._pauses: dict[str, tuple[float, str]] = {}
        self._queries = 0
        self._locked: set[str] = set()
        self._claimed_at: dict[str, float] = {}
        self._requests: dict[int, IngestRequest] = {}
        self._running: dict[str, dict[str, Any]] = {}

    @override
    def count_pending(self, task: str) -> int:
        return self._pending[task]

    @override
    def add_pending(self, task: str, count: int) -> int:
        with self._lock:
            self._pending[task] = max(0, self._pending[task] + count)
            return self._pending[task]

    @override
    def pause(self, name: str, reason: str, seconds: float) -> None:
        with self._lock:
            self._pauses[name] = time.monotonic() + seconds, reason

    @override
    def get_pause(self, name: str) -> str:
        with self._lock:
            end, reason = self._pauses.get(name, (0.0, ""))
            if reason and end <= time.monotonic():
                del self._pauses[name]
                return ""
            return reason

    @override
    def find_paused(self, names: Sequence[str]) -> set[str]:
        return set(filter(self.get_pause, names))

    @override
    @contextmanager
    def track_query(self) -> Iterator[None]:
        with self._lock:
            self._queries += 1
            self.idle.clear()
        try:
            yield
        finally:
            with self._lock:
                self._queries -= 1
                if not self._queries:
                    self.idle.set()

    @override
    def yield_to_queries(self) -> None:
        self.idle.wait(MAX_YIELD_SECONDS)

    @override
    @contextmanager
    def try_lock(self, name: str) -> Iterator[bool]:
        with self._lock:
            taken = name not in self._locked
            self._locked.add(name)
        try:
            yield taken
        finally:
            if taken:
                with self._lock:
                    self._locked.discard(name)

    @override
    def claim_if_due(self, name: str, seconds: float) -> bool:
        with self._lock:
            now = time.monotonic()
            if now - self._claimed_at.get(name, -seconds) < seconds:
                return False
            self._claimed_at[name] = now
            return True

    @override
    def start_task(self, task: str, task_id: str, ids: Sequence[str]) -> int:
        """Return 1: a thread does not die without its process, and the next start reads the
        journal."""
        trace_id = get_contextvars().get("trace_id", "")
        self._running[task_id] = {
            "task": task,
            "ids": list(ids),
            "trace_id": trace_id,
            "since": time.time(),
        }
        return 1

    @override
    def finish_task(self, task: str, task_id: str, ids: Sequence[str]) -> None:
        self._running.pop(task_id, None)

    def get_running_tasks(self) -> dict[str, dict[str, Any]]:
        """Return task id -> `task`, `ids`, `trace_id` and `since` (seconds since the epoch)."""
        return dict(self._running)

    @override
    def get_stalled_tasks(self) -> list[StalledTask]:
        return []

    @override
    def record_ingest_request(self, seq: int, trace_id: str, since: float) -> None:
        """Keep the latest `_MAX_REQUESTS` requests."""
        with self._lock:
            self._requests[seq] = IngestRequest(trace_id, since, *current_context())
            while len(self._requests) > _MAX_REQUESTS:
                del self._requests[next(iter(self._requests))]

    @override
    def get_ingest_requests(self, seqs: Sequence[int]) -> dict[int, IngestRequest]:
        with self._lock:
            return {seq: self._requests[seq] for seq in seqs if seq in self._requests}
