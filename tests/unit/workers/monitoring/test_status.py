"""The status of a library as plain data."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from config.language_model_settings import LanguageModelSettings
from config.settings import Settings
from graph.local.store import SqliteSkillGraph
from graph.records import Publication, Source
from skills.events import QueryAsked, SourceChanged, new_event
from skills.record import RevisionKey
from tasks.journal.sqlite import SqliteJournal
from tasks.language_model.protocol import TokenUsage
from tasks.language_model.sqlite_answers import SqliteAnswerStore
from workers.cli.operations.status import (
    _model_lines,
    _problem_lines,
    _server_lines,
    _source_line,
)
from workers.monitoring.status import home_status, language_model_status


def test_an_empty_library_is_all_done(tmp_path: Path) -> None:
    graph, journal = (
        SqliteSkillGraph(tmp_path / "graph.db", writable=True),
        SqliteJournal(":memory:"),
    )
    report = home_status(Settings(home=tmp_path), graph, journal, serving=False)
    assert report["skills"] == {"published": 0, "failed": 0, "held": 0, "removed": 0, "waiting": 0}
    assert report["paging_done"] == 1.0
    assert report["serving"] is False
    assert "language_model" not in report
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
    assert report["skills"] == {
        **{"published": 2, "failed": 1, "held": 0, "removed": 0, "waiting": 1}
    }
    assert (report["embedded"], report["embedded_share"]) == (1, 0.5)
    assert (report["paged"], report["paging_done"]) == (1, 0.5)  # the names before 0.2
    assert (report["open_events"], report["open_queries"]) == (1, 1)
    assert [source["source_id"] for source in report["sources"]] == ["team"]
    assert json.loads(json.dumps(report)) == report
    journal.close()
    graph.close()


NOON = datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp()


def test_status_says_what_the_language_model_used_today(tmp_path: Path) -> None:
    answers = SqliteAnswerStore(tmp_path / "answers.db")
    for day, tokens in (("2026-11-21", 9000), ("2026-11-22", 1000)):
        reservation = answers.reserve_tokens(day, tokens, 0, 10)
        assert reservation is not None
        answers.settle(reservation, day, "select", TokenUsage(tokens, 234), 2)
    for _ in range(3):
        answers.count_stored("2026-11-22", "select")
    settings = LanguageModelSettings(
        base_url="http://127.0.0.1:1/v1", model="small", daily_tokens=5000
    )
    report = language_model_status(settings, answers, NOON)
    assert report == {
        "language_model": {
            "model": "small",
            "stages": ["select"],
            "day": "2026-11-22",
            "tokens": 1234,
            "daily_tokens": 5000,
            "tokens_left": 3766,
            "usage": {
                "select": {
                    "calls": 2,
                    "prompt_tokens": 1000,
                    "completion_tokens": 234,
                    "stored": 3,
                }
            },
        }
    }
    assert json.loads(json.dumps(report)) == report
    assert _model_lines(report["language_model"]) == [
        "model        small: 1,234 tokens today (UTC) of 5,000, 3,766 left",
        "  select     1,234 tokens in 2 calls, 3 stored answers",
    ]
    unlimited = settings.model_copy(update={"daily_tokens": 0})
    (line, _) = _model_lines(language_model_status(unlimited, answers, NOON)["language_model"])
    assert line == "model        small: 1,234 tokens today (UTC), no limit"
    answers.close()


def test_the_command_line_shows_no_control_characters_of_ids_and_reasons() -> None:
    hostile = "team:\x1b[2Jkiln\nhome is fine"
    task = {"task": "skillbus.ingest", "ids": [hostile], "seconds": 2.0}
    worker = {"worker": "w", "queues": ["skillbus.ingest"], "running": [task]}
    lines = _server_lines({"servers": [], "workers": [worker], "queues": None})
    lines += _problem_lines({"problem": hostile})
    lines.append(_source_line({"kind": "directory", "source_id": "team", "root": hostile}))
    assert [line for line in lines if "\x1b" in line or "\n" in line] == []
    assert sum("home is fine" in line for line in lines) == 3
