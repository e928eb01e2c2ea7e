"""The link task: how it yields to queries, and reads the marks."""

from __future__ import annotations

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


def test_it_yields_to_queries_until_half_of_its_time_is_over(tmp_path: Path) -> None:
    graph = SqliteSkillGraph(tmp_path / "graph.db", writable=True)
    graph.publish(
        [
            Publication(RevisionKey(f"team:{name}", 1), "team", name, "hash", name, "")
            for name in "abcde"
        ]
    )
    deadline = Deadline(LINK.time_limit)
    yields: list[float] = []

    def yield_to_queries() -> None:
        yields.append(deadline.remaining())
        if len(yields) == 3:
            deadline._end -= LINK.time_limit / 2

    coordinator = SimpleNamespace(yield_to_queries=yield_to_queries)
    services: Any = SimpleNamespace(graph=graph, linker=Linker(graph), coordinator=coordinator)
    assert _link_marked(services, deadline) == 5
    assert len(yields) == 3
    graph.close()


def test_reading_the_skills_ends_with_the_time_limit(tmp_path: Path) -> None:
    """A retry in the same process goes on with the rest."""
    graph = SqliteSkillGraph(tmp_path / "graph.db", writable=True)
    graph.publish(
        [
            Publication(RevisionKey(f"team:{n}", 1), "team", f"{n}", "hash", f"{n}", "")
            for n in range(300)
        ]
    )
    deadline = Deadline(LINK.time_limit)

    def end() -> None:
        deadline._end -= LINK.time_limit

    coordinator = SimpleNamespace(yield_to_queries=end)
    services: Any = SimpleNamespace(graph=graph, linker=Linker(graph), coordinator=coordinator)
    with pytest.raises(DeadlineExceededError, match="read the skills to link"):
        _link_marked(services, deadline)
    coordinator.yield_to_queries = lambda: None
    assert _link_marked(services, Deadline(LINK.time_limit)) == 300
    graph.close()


def test_the_marks_of_a_large_import_are_read_once(tmp_path: Path) -> None:
    graph = SqliteSkillGraph(tmp_path / "graph.db", writable=True)
    graph.publish(
        [
            Publication(RevisionKey(f"team:{n}", 1), "team", f"{n}", "hash", f"{n}", "")
            for n in range(1_000)
        ]
    )
    reads: list[int] = []

    class Counted:
        def __getattr__(self, name: str) -> object:
            return getattr(graph, name)

        def list_awaiting_linking(self, limit: int) -> list[tuple[str, int]]:
            found = graph.list_awaiting_linking(limit)
            reads.append(len(found))
            return found

    counted: Any = Counted()
    coordinator = SimpleNamespace(yield_to_queries=lambda: None)
    services: Any = SimpleNamespace(graph=counted, linker=Linker(counted), coordinator=coordinator)
    assert _link_marked(services, Deadline(LINK.time_limit)) == 1_000
    assert sum(reads) == 1_000
    graph.close()
