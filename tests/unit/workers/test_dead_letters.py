"""Retry of dead letters while other processes change them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from graph.local.store import SqliteSkillGraph
from graph.protocol import SkillGraph
from graph.records import Source
from skills.events import Event
from skills.record import RevisionKey
from tasks.coordination.local import LocalCoordinator
from tasks.coordination.protocol import Coordinator
from tasks.journal.protocol import DeadLetter, Journal
from tasks.journal.sqlite import SqliteJournal
from tasks.policies import EMBED_SECTIONS, EMBED_SKILLS, INGEST, REFINE, TaskPolicy
from workers.backend.store_backend import StoreBackend
from workers.library import dead_letters
from workers.library.dead_letters import retry_dead_letter


@dataclass
class DiscardingBackend:
    """A backend during whose retry another process discards the letter."""

    graph: SkillGraph
    journal: Journal
    file: Path
    coordinator: Coordinator = field(init=False)
    app: Any = None
    accepted: list[Event] = field(default_factory=list)

    def accept(self, event: Event) -> str:
        self.accepted.append(event)
        with closing(SqliteJournal(self.file)) as other:
            assert other.delete_dead_letter("1-letter")
        return event.id


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[DiscardingBackend]:
    graph = SqliteSkillGraph(tmp_path / "graph.db", writable=True)
    graph.save_source(Source("lib", "directory", "/srv/lib"))
    graph.record_failures([(RevisionKey("lib:a", 1), "lib", "a", "no text")])
    journal = SqliteJournal(tmp_path / "journal.db")
    journal.add_dead_letter(DeadLetter("1-letter", INGEST.name, ("lib:a",), "", 3, "", "", 1.0))
    yield DiscardingBackend(graph, journal, tmp_path / "journal.db")
    journal.close()
    graph.close()


def test_a_letter_that_is_discarded_during_its_retry_is_retried(backend: DiscardingBackend) -> None:
    assert retry_dead_letter(cast(StoreBackend, backend), "1-letter")["id"] == "1-letter"
    assert [event.type for event in backend.accepted] == ["skillbus.source.changed.v1"]
    assert backend.journal.count_dead_letters() == 0


@pytest.mark.parametrize("task", [EMBED_SKILLS, EMBED_SECTIONS, REFINE])
def test_a_task_that_is_sent_again_is_pending(
    backend: DiscardingBackend, monkeypatch: pytest.MonkeyPatch, task: TaskPolicy
) -> None:
    sent = []
    monkeypatch.setattr(dead_letters, "send_task", lambda _, name, ids: sent.append((name, ids)))
    backend.coordinator = LocalCoordinator()
    letter = DeadLetter("2-letter", task.name, ("lib:a",), "", 3, "", "", 1.0)
    backend.journal.add_dead_letter(letter)
    retry_dead_letter(cast(StoreBackend, backend), letter.id)
    assert (sent, backend.coordinator.count_pending(task.name)) == ([(task.name, letter.ids)], 1)
