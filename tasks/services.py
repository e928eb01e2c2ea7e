"""What tasks work with; the composition root fills it in, tests fill in theirs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from config.settings import Settings
from graph.links.linker import Linker
from graph.protocol import SkillGraph
from search.protocol import Encoder, Reranker, SearchIndex
from tasks.coordination.protocol import Activity, LocalActivity
from tasks.ingest.throughput import Pace
from tasks.journal.protocol import Journal
from tasks.measures import Measures, NoMeasures
from tasks.query.degradation import Outages
from tasks.query.policy_filter import KnownFacts
from tasks.query.published_library import Library
from tasks.query.usage import Usage

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


@dataclass(frozen=True, slots=True)
class Paces:
    """How fast this process reranks: seconds a candidate, seconds a character read."""

    late: Pace = field(default_factory=Pace)
    rerank: Pace = field(default_factory=Pace)


@dataclass(slots=True)
class Services:
    """The stores, models and channels of one process.

    outages: where stores are servers, so that queries go on without one.
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
    usage: Usage
    writable: bool = True
    activity: Activity = field(default_factory=LocalActivity)
    measures: Measures = field(default_factory=NoMeasures)
    paces: Paces = field(default_factory=Paces)
    outages: Outages | None = None
    facts: KnownFacts = field(default_factory=KnownFacts)
    stopping: threading.Event = field(default_factory=threading.Event)

    def note_use(self, skill_ids: Sequence[str]) -> None:
        """Count that bundles chose these skills; only a writing process keeps count."""
        if self.writable and skill_ids:
            self.usage.note(skill_ids)
