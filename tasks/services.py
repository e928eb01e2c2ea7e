"""What tasks work with; the composition root fills it in, tests fill in theirs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from config.settings import Settings
from graph.linking import Linker
from graph.protocol import SkillGraph
from search.protocol import Encoder, Reranker, SearchIndex
from skills.record import RevisionKey
from tasks.journal import Journal
from tasks.library import Library

T = TypeVar("T")


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
    """How many ingest and page tasks run or wait in this process."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    ingesting: int = 0
    paging: int = 0

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


@dataclass(slots=True)
class Services:
    """The stores, models and channels of one process."""

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
    orphans: dict[RevisionKey, float] = field(default_factory=dict)

    def note_use(self, skill_ids: Sequence[str]) -> None:
        """Count that bundles chose these skills; only a writing process keeps count."""
        if self.writable and skill_ids:
            self.graph.count_use(skill_ids)
