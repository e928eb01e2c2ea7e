"""What is under way: which work runs or waits, who lets whom pass, and who does what alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple, Protocol

LONGEST_WAIT_SECONDS = 0.25
"""How long bulk work lets queries pass before it goes on all the same."""
_MOST_REQUESTS = 1_000


class Abandoned(NamedTuple):
    """A task that a process had begun when it died. trace_id: of what led to it."""

    task: str
    ids: tuple[str, ...]
    trace_id: str


class Request(NamedTuple):
    """Why ingest was asked for, and since when: seconds since the epoch."""

    trace_id: str
    since: float


class Activity(Protocol):
    """What the tasks of a deployment know of one another."""

    trouble: str
    """Why a task gave up for now, "" when none did; its work waits for the reconciler."""

    @property
    def ingesting(self) -> int:
        """Ingest tasks that run or wait."""
        ...

    @property
    def paging(self) -> int:
        """Page tasks that run or wait."""
        ...

    def ingest(self, count: int) -> int:
        """Note that `count` more (or fewer) ingest tasks are under way; returns how many are."""
        ...

    def page(self, count: int) -> int:
        """Note that `count` more (or fewer) page tasks are under way; returns how many are."""
        ...

    def query(self) -> AbstractContextManager[None]:
        """Note that a query is being answered: bulk work lets it pass."""
        ...

    def let_queries_pass(self) -> None:
        """Wait while queries are being answered, but not for ever: bulk work goes on too."""
        ...

    def exclusive(self, name: str) -> AbstractContextManager[bool]:
        """Whether this task alone does the named work, of all processes; False: another does."""
        ...

    def is_due(self, name: str, seconds: float) -> bool:
        """Whether nobody has done the named work for so long; who hears True does it."""
        ...

    def begun(self, task: str, task_id: str, ids: Sequence[str]) -> int:
        """A task runs now; returns how often it was begun without coming to an end."""
        ...

    def ended(self, task: str, task_id: str, ids: Sequence[str]) -> None:
        """A task came to an end, good or bad."""
        ...

    def abandoned(self) -> list[Abandoned]:
        """What a process had begun when it died; each task is told once."""
        ...

    def note_request(self, seq: int, trace_id: str) -> None:
        """Remember for a while that ingest is asked for of what was seen at `seq`."""
        ...

    def requests(self, seqs: Sequence[int]) -> dict[int, Request]:
        """What is remembered of requests, by their number."""
        ...


class LocalActivity:
    """The activity of one process, whose tasks run in its threads."""

    def __init__(self) -> None:
        self.trouble = ""
        self.idle = threading.Event()
        self.idle.set()
        self._lock = threading.Lock()
        self._ingesting = 0
        self._paging = 0
        self._querying = 0
        self._taken: set[str] = set()
        self._done: dict[str, float] = {}
        self._requests: dict[int, Request] = {}

    @property
    def ingesting(self) -> int:
        """Ingest tasks that run or wait."""
        return self._ingesting

    @property
    def paging(self) -> int:
        """Page tasks that run or wait."""
        return self._paging

    def ingest(self, count: int) -> int:
        """Note that `count` more (or fewer) ingest tasks are under way; returns how many are."""
        with self._lock:
            self._ingesting = max(0, self._ingesting + count)
            return self._ingesting

    def page(self, count: int) -> int:
        """Note that `count` more (or fewer) page tasks are under way; returns how many are."""
        with self._lock:
            self._paging = max(0, self._paging + count)
            return self._paging

    @contextmanager
    def query(self) -> Iterator[None]:
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

    def let_queries_pass(self) -> None:
        """Wait while queries are being answered, but not for ever."""
        self.idle.wait(LONGEST_WAIT_SECONDS)

    @contextmanager
    def exclusive(self, name: str) -> Iterator[bool]:
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

    def is_due(self, name: str, seconds: float) -> bool:
        """Whether nobody has done the named work for so long."""
        with self._lock:
            now = time.monotonic()
            if now - self._done.get(name, -seconds) < seconds:
                return False
            self._done[name] = now
            return True

    def begun(self, task: str, task_id: str, ids: Sequence[str]) -> int:
        """Once: a thread does not die without its process, and the journal outlives that."""
        del task, task_id, ids
        return 1

    def ended(self, task: str, task_id: str, ids: Sequence[str]) -> None:
        """Nothing to note."""

    def abandoned(self) -> list[Abandoned]:
        """None."""
        return []

    def note_request(self, seq: int, trace_id: str) -> None:
        """Remember a request, of the latest ones."""
        with self._lock:
            self._requests[seq] = Request(trace_id, time.time())
            while len(self._requests) > _MOST_REQUESTS:
                del self._requests[next(iter(self._requests))]

    def requests(self, seqs: Sequence[int]) -> dict[int, Request]:
        """What is remembered of requests, by their number."""
        with self._lock:
            return {seq: self._requests[seq] for seq in seqs if seq in self._requests}
