"""What is under way: which work runs or waits, who lets whom pass, and who does what alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple, Protocol

MAX_YIELD_SECONDS = 0.25
"""How long bulk work lets queries pass before it goes on all the same."""
_MAX_REQUESTS = 1_000


class StalledTask(NamedTuple):
    """A task that a process had begun when it died. trace_id: of what led to it."""

    task: str
    ids: tuple[str, ...]
    trace_id: str


class IngestRequest(NamedTuple):
    """Why ingest was asked for, and since when: seconds since the epoch."""

    trace_id: str
    since: float


class Coordinator(Protocol):
    """What the tasks of a deployment know of one another."""

    task_error: str
    """Why a task gave up for now, "" when none did; its work waits for the reconciler."""

    @property
    def pending_ingest_tasks(self) -> int:
        """Ingest tasks that run or wait."""
        ...

    @property
    def pending_embed_tasks(self) -> int:
        """Page tasks that run or wait."""
        ...

    def add_ingest_tasks(self, count: int) -> int:
        """Note that `count` more (or fewer) ingest tasks are under way; returns how many are."""
        ...

    def add_embed_tasks(self, count: int) -> int:
        """Note that `count` more (or fewer) page tasks are under way; returns how many are."""
        ...

    def track_query(self) -> AbstractContextManager[None]:
        """Note that a query is being answered: bulk work lets it pass."""
        ...

    def yield_to_queries(self) -> None:
        """Wait while queries are being answered, but not for ever: bulk work goes on too."""
        ...

    def try_lock(self, name: str) -> AbstractContextManager[bool]:
        """Whether this task alone does the named work, of all processes; False: another does."""
        ...

    def claim_if_due(self, name: str, seconds: float) -> bool:
        """Whether nobody has done the named work for so long; who hears True does it."""
        ...

    def start_task(self, task: str, task_id: str, ids: Sequence[str]) -> int:
        """A task runs now; returns how often it was begun without coming to an end."""
        ...

    def finish_task(self, task: str, task_id: str, ids: Sequence[str]) -> None:
        """A task came to an end, good or bad."""
        ...

    def get_stalled_tasks(self) -> list[StalledTask]:
        """What a process had begun when it died; each task is told once."""
        ...

    def record_ingest_request(self, seq: int, trace_id: str) -> None:
        """Remember for a while that ingest is asked for of what was seen at `seq`."""
        ...

    def get_ingest_requests(self, seqs: Sequence[int]) -> dict[int, IngestRequest]:
        """What is remembered of requests, by their number."""
        ...


class LocalCoordinator:
    """The activity of one process, whose tasks run in its threads."""

    def __init__(self) -> None:
        self.task_error = ""
        self.idle = threading.Event()
        self.idle.set()
        self._lock = threading.Lock()
        self._ingesting = 0
        self._paging = 0
        self._querying = 0
        self._taken: set[str] = set()
        self._done: dict[str, float] = {}
        self._requests: dict[int, IngestRequest] = {}

    @property
    def pending_ingest_tasks(self) -> int:
        """Ingest tasks that run or wait."""
        return self._ingesting

    @property
    def pending_embed_tasks(self) -> int:
        """Page tasks that run or wait."""
        return self._paging

    def add_ingest_tasks(self, count: int) -> int:
        """Note that `count` more (or fewer) ingest tasks are under way; returns how many are."""
        with self._lock:
            self._ingesting = max(0, self._ingesting + count)
            return self._ingesting

    def add_embed_tasks(self, count: int) -> int:
        """Note that `count` more (or fewer) page tasks are under way; returns how many are."""
        with self._lock:
            self._paging = max(0, self._paging + count)
            return self._paging

    @contextmanager
    def track_query(self) -> Iterator[None]:
        """Note that a query is being answered."""
        with self._lock:
            self._querying += 1
            self.idle.clear()
        try:
            yield
        finally:
            with self._lock:
                self._querying -= 1
                if not self._querying:
                    self.idle.set()

    def yield_to_queries(self) -> None:
        """Wait while queries are being answered, but not for ever."""
        self.idle.wait(MAX_YIELD_SECONDS)

    @contextmanager
    def try_lock(self, name: str) -> Iterator[bool]:
        """Whether this thread alone does the named work."""
        with self._lock:
            first = name not in self._taken
            self._taken.add(name)
        try:
            yield first
        finally:
            if first:
                with self._lock:
                    self._taken.discard(name)

    def claim_if_due(self, name: str, seconds: float) -> bool:
        """Whether nobody has done the named work for so long."""
        with self._lock:
            now = time.monotonic()
            if now - self._done.get(name, -seconds) < seconds:
                return False
            self._done[name] = now
            return True

    def start_task(self, task: str, task_id: str, ids: Sequence[str]) -> int:
        """Once: a thread does not die without its process, and the journal outlives that."""
        del task, task_id, ids
        return 1

    def finish_task(self, task: str, task_id: str, ids: Sequence[str]) -> None:
        """Nothing to note."""

    def get_stalled_tasks(self) -> list[StalledTask]:
        """None."""
        return []

    def record_ingest_request(self, seq: int, trace_id: str) -> None:
        """Remember a request, of the latest ones."""
        with self._lock:
            self._requests[seq] = IngestRequest(trace_id, time.time())
            while len(self._requests) > _MAX_REQUESTS:
                del self._requests[next(iter(self._requests))]

    def get_ingest_requests(self, seqs: Sequence[int]) -> dict[int, IngestRequest]:
        """What is remembered of requests, by their number."""
        with self._lock:
            return {seq: self._requests[seq] for seq in seqs if seq in self._requests}
