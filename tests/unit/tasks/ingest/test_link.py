"""The link task: how it yields to queries."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from graph.links.linker import Linker
from graph.local.store import SqliteSkillGraph
from graph.records import Publication
from skills.record import RevisionKey
from tasks.ingest.link import _link_marked
from tasks.policies import LINK, Deadline


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
