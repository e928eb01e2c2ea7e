"""Services for tests of `plan`: a catalog and a journal, and a sender that records tasks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from typing_extensions import override

from config.settings import Settings
from graph.local.store import SqliteSkillGraph
from skills.events import Event, new_event
from tasks.coordination.local import LocalCoordinator
from tasks.ingest.plan import plan
from tasks.journal.sqlite import SqliteJournal
from tasks.policies import INGEST, Deadline


class CountingCoordinator(LocalCoordinator):
    """Counts the ingest tasks that `plan` sends."""

    announced = 0

    @override
    def add_pending(self, task: str, count: int) -> int:
        if task == INGEST.name:
            self.announced += count
        return super().add_pending(task, count)


@dataclass
class PlanServices:
    """The services that `plan` uses, and the tasks that it sent."""

    graph: SqliteSkillGraph
    journal: SqliteJournal
    settings: Settings
    coordinator: CountingCoordinator = field(default_factory=CountingCoordinator)
    sent: list[tuple[str, list[object]]] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)
    history: None = None
    review_store: None = None

    @classmethod
    @contextmanager
    def opened(cls, home: Path) -> Iterator[Self]:
        """Services with a catalog in `home` and a journal in memory."""
        graph = SqliteSkillGraph(home / "graph.db", writable=True)
        journal = SqliteJournal(":memory:")
        yield cls(graph, journal, Settings(home=home))
        journal.close()
        graph.close()

    def send_task(self, name: str, ids: list[object]) -> None:
        """Record a task instead of sending it."""
        self.sent.append((name, list(ids)))

    def ingested(self) -> list[str]:
        """Ids of the skills that were sent to ingest, sorted."""
        return sorted(str(one) for name, ids in self.sent if name == INGEST.name for one in ids)

    def accept(self, *events: Event) -> None:
        """Add events to the journal."""
        for event in events:
            self.journal.add_job(event, "event")

    def plan(self, *event_ids: str) -> None:
        """Run `plan` for these events, or for all open ones."""
        self.sent.clear()
        waiting = event_ids or self.journal.list_open_jobs("event")
        plan(self, Deadline(60), waiting)  # type: ignore[arg-type]  # the part it needs

    def run(self, data: Any) -> Any:
        """Accept an event and run `plan`; returns its job."""
        event = new_event(data, "skillbus/test")
        self.accept(event)
        self.plan(event.id)
        return self.journal.get_job(event.id)

    def states(self) -> dict[str, str]:
        """State of each skill, by path."""
        return {entry.path: entry.state.value for entry in self.graph.get_entries()}
