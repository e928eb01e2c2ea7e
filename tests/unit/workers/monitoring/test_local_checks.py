"""`doctor`: how checks are run, and what they make of what servers say."""

from __future__ import annotations

import errno
import os
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from config.errors import SkillbusError, TransientError, UsageError
from config.language_model_settings import LanguageModelSettings
from config.server_settings import ServerSettings
from config.settings import Settings, WorkerSettings
from graph.local.store import SqliteSkillGraph
from graph.records import Publication, Source
from search.local.index import LocalSearchIndex
from search.models.load_models import encoder_identity
from skills.record import RevisionKey
from tasks.broker import redis_connection
from tasks.sources.git import process
from workers.monitoring.local_checks import (
    library_checks,
    machine_checks,
    run_checks,
    run_checks_in_parallel,
)
from workers.monitoring.metrics_server import not_ready_reasons
from workers.monitoring.server_checks import _check_clock, _check_version
from workers.processes import supervisor


def refuse() -> str:
    raise UsageError("refused:\n  read the manual")


def test_a_failing_check_hides_no_other() -> None:
    assert run_checks({"one": refuse, "two": lambda: "fine"}) == [
        {"check": "one", "state": "failed", "detail": "refused: read the manual"},
        {"check": "two", "state": "ok", "detail": "fine"},
    ]


def test_servers_are_asked_at_once_and_none_for_long() -> None:
    gate = threading.Event()

    def hang() -> str:
        gate.wait(120)
        return "late"

    started = time.monotonic()
    rows = run_checks_in_parallel({"slow": hang, "quick": lambda: "fine", "other": hang}, 1)
    assert time.monotonic() - started < 60
    assert [row["state"] for row in rows] == ["failed", "ok", "failed"]
    assert rows[0]["detail"] == "slow did not answer within 1 s"
    gate.set()


@pytest.mark.parametrize("version", ["3.10.8", "3.11", "4.0.1", "10.0.0"])
def test_versions_that_will_do(version: str) -> None:
    _check_version("RabbitMQ", version, (3, 10))


@pytest.mark.parametrize("version", ["3.9.27", "2.0", ""])
def test_versions_that_are_too_old(version: str) -> None:
    with pytest.raises(SkillbusError, match=r"3\.10 or later is needed"):
        _check_version("RabbitMQ", version, (3, 10))


def test_clocks_may_be_some_seconds_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = ServerSettings()
    for ahead, wanted in ((-4.9, "4.9 s ahead of Redis"), (4.9, "4.9 s behind Redis")):
        monkeypatch.setattr(redis_connection, "measure_clock_skew", lambda _, ahead=ahead: ahead)
        assert wanted in _check_clock(servers)
    for ahead in (-5.1, 5.1, 86_400.0):
        monkeypatch.setattr(redis_connection, "measure_clock_skew", lambda _, ahead=ahead: ahead)
        with pytest.raises(SkillbusError, match="synchronise both with NTP"):
            _check_clock(servers)


def test_a_worker_is_ready_when_servers_answer_and_a_child_has_loaded() -> None:
    up = {"up": True, "problem": ""}
    away = {"up": False, "problem": str(TransientError("Redis does not answer"))}
    assert not_ready_reasons({"servers": [up, up]}, 1) == []
    assert not_ready_reasons({"servers": [up, away]}, 2) == ["Redis does not answer"]
    assert len(not_ready_reasons({"servers": [away]}, 0)) == 2


def test_every_worker_needs_a_port() -> None:
    with pytest.raises(UsageError, match="8 consecutive ports are needed"):
        supervisor.run_supervisor(WorkerSettings(metrics_port=65_533), [], 1)


def test_a_root_that_the_system_refuses_to_look_at_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "mount"
    root.mkdir()
    look = os.stat

    def refuse_root(path: Any, **named: Any) -> os.stat_result:
        if path == root:
            raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")
        return look(path, **named)

    with closing(SqliteSkillGraph(tmp_path / "graph.db", writable=True)) as graph:
        graph.save_source(Source("team", "directory", str(root)))
    monkeypatch.setattr(os, "stat", refuse_root)
    sources = library_checks(Settings().model_copy(update={"home": tmp_path}))["sources"]
    with pytest.raises(SkillbusError, match=r"mount of source team is missing"):
        sources()


def test_git_is_missed_where_there_are_git_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    check = machine_checks(Settings())["git"]
    assert "needed for git sources only" in check()
    with closing(SqliteSkillGraph(tmp_path / "graph.db", writable=True)) as graph:
        graph.save_source(Source("team", "git", "https://example.org/x", last_error="gone"))
    sources = library_checks(Settings().model_copy(update={"home": tmp_path}))["sources"]
    with pytest.raises(SkillbusError, match="team: gone; git is not installed"):
        sources()
    old = tmp_path / "git"
    old.write_text("#!/bin/sh\necho git version 2.30.2\n")
    old.chmod(0o755)
    assert "git version 2.30.2: git 2.37 or later is needed" in check()
    old.write_text("#!/bin/sh\necho git version 2.49.GIT\n")
    assert check() == "git version 2.49.GIT"
    process._versions.clear()


@pytest.mark.parametrize("name", ["outcomes", "answers"])
def test_a_damaged_file_with_what_queries_read_is_found(tmp_path: Path, name: str) -> None:
    model = LanguageModelSettings(base_url="http://127.0.0.1:1/v1", model="m")
    settings = Settings(language_model=model).model_copy(update={"home": tmp_path})
    SqliteSkillGraph(tmp_path / "graph.db", writable=True).close()
    check = library_checks(settings)[name]
    assert check().endswith("can be read")
    (tmp_path / f"{name}.db").write_bytes(b"no database" * 1000)
    with pytest.raises(SkillbusError, match=r"cannot be opened .* move it away"):
        check()


def test_a_skill_that_is_published_during_the_check_is_not_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings().model_copy(update={"home": tmp_path})
    identity = encoder_identity(settings.encoder)
    LocalSearchIndex(tmp_path / "index", *identity, writable=True).close()
    list_keys = LocalSearchIndex.list_keys
    with closing(SqliteSkillGraph(tmp_path / "graph.db", writable=True)) as graph:
        check = library_checks(settings)["index"]

        def list_then_publish(index: LocalSearchIndex) -> list[RevisionKey]:
            keys = list_keys(index)
            publication = Publication(RevisionKey("lib:kiln", 1), "lib", "kiln", "hash", "kiln", "")
            graph.publish([publication])
            return keys

        monkeypatch.setattr(LocalSearchIndex, "list_keys", list_then_publish)
        assert check() == "0 revisions, 0 of them superseded"
        monkeypatch.setattr(LocalSearchIndex, "list_keys", list_keys)
        with pytest.raises(SkillbusError, match="the index lacks 1 published revision,"):
            check()
