"""What tasks work with; the composition root fills it in, tests fill in theirs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from config.settings import Settings
from graph.linking import Linker
from graph.protocol import SkillGraph
from search.protocol import Encoder, Reranker, SearchIndex
from tasks.journal import Journal
from tasks.library import Library
from tasks.pace import Pace

T = TypeVar("T")

_LONGEST_WAIT_SECONDS = 0.25


def _set_event() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


class Send(Protocol):
    """Sends a task by name; ids in, nothing out."""

    def __call__(self, name: str, ids: Sequence[object]) -> None:
        """Put the task on its queue."""
        ...


class Lazy(Generic[T]):
    """A value made on first use, once, whichever thread comes first."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._value: T | None = None

    def get(self) -> T:
        """The value."""
        with self._lock:
            if self._value is None:
                self._value = self._make()
            return self._value


@dataclass(slots=True)
class Activity:
    """How many tasks of a kind run or wait in this process, so that one can let another pass."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    ingesting: int = 0
    paging: int = 0
    querying: int = 0
    idle: threading.Event = field(default_factory=_set_event)

    def ingest(self, count: int) -> int:
        """Note that `count` more (or fewer) ingest tasks are under way; returns how many are."""
        with self.lock:
            self.ingesting = max(0, self.ingesting + count)
            return self.ingesting

    def page(self, count: int) -> int:
        """Note that `count` more (or fewer) page tasks are under way; returns how many are."""
        with self.lock:
            self.paging = max(0, self.paging + count)
            return self.paging

    @contextmanager
    def query(self) -> Iterator[None]:
        """Note that a query is being answered: bulk work lets it pass."""
        with self.lock:
            self.querying += 1
            self.idle.clear()
        try:
            yield
        finally:
            with self.lock:
                self.querying -= 1
                if not self.querying:
                    self.idle.set()

    def let_queries_pass(self) -> None:
        """Wait while queries are being answered, but not for ever: bulk work goes on too."""
        self.idle.wait(_LONGEST_WAIT_SECONDS)


@dataclass(frozen=True, slots=True)
class Paces:
    """How fast this process reranks: seconds a candidate, seconds a character read."""

    late: Pace = field(default_factory=Pace)
    rerank: Pace = field(default_factory=Pace)


@dataclass(slots=True)
class Services:
    """The stores, models and channels of one process.

    trouble: why a task gave up for now, "" when none did; its work waits for the reconciler.
    """

    settings: Settings
    journal: Journal
    index: SearchIndex
    graph: SkillGraph
    library: Library
    encoder: Lazy[Encoder]
    reranker: Lazy[Reranker] | None
    send: Send
    linker: Linker
    writable: bool = True
    activity: Activity = field(default_factory=Activity)
    paces: Paces = field(default_factory=Paces)
    trouble: str = ""
    stopping: threading.Event = field(default_factory=threading.Event)

    def note_use(self, skill_ids: Sequence[str]) -> None:
        """Count that bundles chose these skills; only a writing process keeps count."""
        if self.writable and skill_ids:
            self.graph.count_use(skill_ids)
