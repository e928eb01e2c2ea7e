"""The status of a library as plain data."""

from __future__ import annotations

import json
from pathlib import Path

from config.settings import Settings
from graph.local.store import SqliteSkillGraph
from graph.records import Publication, Source
from skills.events import QueryAsked, SourceChanged, new_event
from skills.record import RevisionKey
from tasks.journal.sqlite import SqliteJournal
from workers.monitoring.status import home_status


def test_an_empty_library_is_all_done(tmp_path: Path) -> None:
    graph, journal = (
        SqliteSkillGraph(tmp_path / "graph.db", writable=True),
        SqliteJournal(":memory:"),
    )
    report = home_status(Settings(home=tmp_path), graph, journal, serving=False)
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
    graph.save_source(Source("team", "directory", "/skills"))
    seqs = graph.allocate_sequence(4)
    graph.request_ingest([(f"team:{name}", "team", name) for name in "abcd"], seqs[0])
    keys = [RevisionKey(f"team:{name}", seq) for name, seq in zip("ab", seqs[1:3], strict=True)]
    graph.publish(
        [Publication(key, "team", key.skill_id[-1], "hash", "name", "about") for key in keys]
    )
    graph.mark_embedded(keys[:1])
    graph.record_failures([(RevisionKey("team:c", seqs[3]), "team", "c", "empty")])
    journal.add_job(new_event(SourceChanged(source_id="team", root="/skills"), "test"), "event")
    journal.add_job(new_event(QueryAsked(task="x"), "test"), "query")
    report = home_status(Settings(home=tmp_path), graph, journal, serving=True)
    assert report["skills"] == {"published": 2, "failed": 1, "removed": 0, "waiting": 1}
    assert (report["embedded"], report["embedded_share"]) == (1, 0.5)
    assert (report["paged"], report["paging_done"]) == (1, 0.5)  # the names before 0.2
    assert (report["open_events"], report["open_queries"]) == (1, 1)
    assert [source["source_id"] for source in report["sources"]] == ["team"]
    assert json.loads(json.dumps(report)) == report
    journal.close()
    graph.close()
