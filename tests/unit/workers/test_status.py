"""The status of a library as plain data."""

from __future__ import annotations

import json
from pathlib import Path

from config.settings import Settings
from graph.local.store import SqliteSkillGraph
from graph.protocol import Publication, Source
from skills.events import QueryAsked, SourceChanged, new_event
from skills.record import RevisionKey
from tasks.journal.sqlite import SqliteJournal
from workers.monitoring.status import status_of


def test_an_empty_library_is_all_done(tmp_path: Path) -> None:
    graph, journal = (
        SqliteSkillGraph(tmp_path / "graph.db", writable=True),
        SqliteJournal(":memory:"),
    )
    report = status_of(Settings(home=tmp_path), graph, journal, serving=False)
    assert report["skills"] == {"published": 0, "failed": 0, "removed": 0, "waiting": 0}
    assert report["paging_done"] == 1.0
    assert report["serving"] is False
    journal.close()
    graph.close()


def test_status_counts_what_is_there_and_under_way(tmp_path: Path) -> None:
    graph, journal = (
        SqliteSkillGraph(tmp_path / "graph.db", writable=True),
        SqliteJournal(":memory:"),
    )
    graph.put_source(Source("team", "directory", "/skills"))
    seqs = graph.take_seqs(4)
    graph.request([(f"team:{name}", "team", name) for name in "abcd"], seqs[0])
    keys = [RevisionKey(f"team:{name}", seq) for name, seq in zip("ab", seqs[1:3], strict=True)]
    graph.publish(
        [Publication(key, "team", key.skill_id[-1], "hash", "name", "about") for key in keys]
    )
    graph.mark_paged(keys[:1])
    graph.fail([(RevisionKey("team:c", seqs[3]), "team", "c", "empty")])
    journal.accept(new_event(SourceChanged(source_id="team", root="/skills"), "test"), "event")
    journal.accept(new_event(QueryAsked(task="x"), "test"), "query")
    report = status_of(Settings(home=tmp_path), graph, journal, serving=True)
    assert report["skills"] == {"published": 2, "failed": 1, "removed": 0, "waiting": 1}
    assert (report["paged"], report["paging_done"]) == (1, 0.5)
    assert (report["open_events"], report["open_queries"]) == (1, 1)
    assert [source["source_id"] for source in report["sources"]] == ["team"]
    assert json.loads(json.dumps(report)) == report
    journal.close()
    graph.close()
