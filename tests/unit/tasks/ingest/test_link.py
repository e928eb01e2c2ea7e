"""The link task: how it yields to queries, and reads the marks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graph.links.linker import Linker
from graph.local.store import SqliteSkillGraph
from graph.records import Publication
from skills.record import RevisionKey
from tasks.ingest.link import _link_marked
from tasks.policies import LINK, Deadline, DeadlineExceededError


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Any]:
    graph = SqliteSkillGraph(tmp_path / "graph.db", writable=True)
    coordinator = SimpleNamespace(yield_to_queries=lambda: None)
    yield SimpleNamespace(graph=graph, linker=Linker(graph), coordinator=coordinator)
    graph.close()


def publish(services: Any, count: int) -> None:
    services.graph.publish(
        [
            Publication(RevisionKey(f"team:{n}", 1), "team", f"{n}", "hash", f"{n}", "")
            for n in range(count)
        ]
    )


def test_it_yields_to_queries_until_half_of_its_time_is_over(services: Any) -> None:
    publish(services, 5)
    deadline = Deadline(LINK.time_limit)
    yields: list[float] = []

    def yield_to_queries() -> None:
        yields.append(deadline.remaining())
        if len(yields) == 3:
            deadline._end -= LINK.time_limit / 2

    services.coordinator.yield_to_queries = yield_to_queries
    assert _link_marked(services, deadline) == 5
    assert len(yields) == 3


def test_reading_the_skills_ends_with_the_time_limit(services: Any) -> None:
    """A retry in the same process goes on with the rest."""
    publish(services, 300)
    deadline = Deadline(LINK.time_limit)

    def end() -> None:
        deadline._end -= LINK.time_limit

    services.coordinator.yield_to_queries = end
    with pytest.raises(DeadlineExceededError, match="read the skills to link"):
        _link_marked(services, deadline)
    services.coordinator.yield_to_queries = lambda: None
    assert _link_marked(services, Deadline(LINK.time_limit)) == 300


def test_the_marks_of_a_large_import_are_read_once(
    services: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(services, 20)
    reads: list[int] = []
    list_awaiting = services.graph.list_awaiting_linking

    def counted(limit: int) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = list_awaiting(limit)
        reads.append(len(found))
        return found

    monkeypatch.setattr(services.graph, "list_awaiting_linking", counted)
    monkeypatch.setattr("tasks.ingest.link._BATCH_SKILLS", 5)
    assert _link_marked(services, Deadline(LINK.time_limit)) == 20
    assert sum(reads) == 20
