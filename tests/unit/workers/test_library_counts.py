"""When the values that a library is filtered by are counted again, and when a search is cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from graph.entry_filter import EntryCount, EntryFilter
from graph.local.store import SqliteSkillGraph
from graph.records import Publication
from search.protocol import Hit, LexicalSearch, SearchIndex
from skills.record import RevisionKey
from workers.library.entry_policy import EntryPolicy
from workers.library.search import library_search
from workers.library.search.library_search import LibrarySearch

COUNT_SECONDS = 0.1


class Clock:
    """A clock that moves when it is moved, in place of the module `time`."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(library_search, "time", clock)
    return clock


@pytest.fixture
def graph(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SqliteSkillGraph]:
    """A catalog whose entries take a while to count."""
    with closing(SqliteSkillGraph(tmp_path / "library.db", writable=True)) as graph:
        count_entries = graph.count_entries

        def count_slowly() -> list[EntryCount]:
            clock.now += COUNT_SECONDS
            return count_entries()

        monkeypatch.setattr(graph, "count_entries", count_slowly)
        yield graph


def publish(graph: SqliteSkillGraph, seq: int) -> None:
    name = f"skill-{seq}"
    graph.publish([Publication(RevisionKey(f"lib:{name}", seq), "lib", name, "hash", name, "")])


def test_a_library_that_changes_is_not_counted_for_each_page(
    graph: SqliteSkillGraph, clock: Clock
) -> None:
    library = LibrarySearch(
        lambda: (graph, cast(SearchIndex, None)), lambda: cast(EntryPolicy, None)
    )

    def total() -> int:
        found = library.find("", EntryFilter(), "", 50, visible=None, include_withheld=False)
        return found.total

    publish(graph, 1)
    assert total() == 1
    publish(graph, 2)
    assert total() == 1, "counted just now"
    clock.now += 20 * COUNT_SECONDS
    assert total() == 2
    clock.now += 20 * COUNT_SECONDS
    before = clock.now
    assert total() == 2
    assert clock.now == before, "nothing has changed"
    publish(graph, 3)
    assert total() == 3
    graph.request_ingest([("lib:waits", "lib", "waits")], 4)
    clock.now += 5
    assert total() == 4, "what changes no epoch is counted after a while"


class Engine:
    """An index whose searches find these revisions, as many as they may."""

    def __init__(self, seqs: Sequence[int]) -> None:
        self._hits = [Hit(RevisionKey(f"lib:skill-{seq}", seq), 1.0) for seq in seqs]

    def search_many(self, searches: Sequence[LexicalSearch]) -> list[list[Hit]]:
        return [self._hits[: one.limit] for one in searches]


@pytest.mark.parametrize(("unpublished", "is_cut"), [(0, False), (1, False), (2, True)])
def test_a_search_is_cut_if_the_engine_may_have_more(
    graph: SqliteSkillGraph, monkeypatch: pytest.MonkeyPatch, unpublished: int, is_cut: bool
) -> None:
    monkeypatch.setattr(library_search, "MAX_FOUND", 3)
    monkeypatch.setattr(library_search, "_EXTRA_HITS", 2)
    for seq in (1, 2, 3):
        publish(graph, seq)
    engine = cast(SearchIndex, Engine(range(1, 4 + unpublished)))
    library = LibrarySearch(lambda: (graph, engine), lambda: cast(EntryPolicy, None))
    found = library.find("kiln", EntryFilter(), "", 9, visible=None, include_withheld=True)
    assert (found.total, found.is_cut) == (3, is_cut)
