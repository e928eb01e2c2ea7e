"""The journal: what was accepted stays, once, with its outcome."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from config.errors import PermanentError, TransientError, UsageError
from skills.events import Event, QueryAsked, SourceChanged, new_event
from tasks.sqlite_journal import SqliteJournal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[SqliteJournal]:
    opened = SqliteJournal(path)
    yield opened
    opened.close()


def changed(root: str = "/skills") -> Event:
    return new_event(SourceChanged(source_id="team", root=root), "skillbus/test")


def test_an_accepted_event_is_open_until_it_ends(journal: SqliteJournal) -> None:
    event = changed()
    assert journal.accept(event, "event")
    assert journal.open_jobs("event") == [event.id]
    assert journal.job(event.id).event == event
    journal.finish(event.id, {"found": 3})
    job = journal.job(event.id)
    assert (job.state, job.outcome, job.reason) == ("done", {"found": 3}, "")
    assert journal.open_jobs("event") == []


def test_the_same_event_is_accepted_once(journal: SqliteJournal) -> None:
    event = changed()
    assert journal.accept(event, "event")
    assert not journal.accept(event, "event")
    assert journal.open_jobs("event") == [event.id]


def test_an_outcome_is_written_once(journal: SqliteJournal) -> None:
    event = changed()
    journal.accept(event, "event")
    journal.fail(event.id, "no such folder")
    journal.finish(event.id, {"late": True})
    journal.fail(event.id, "another reason")
    job = journal.job(event.id)
    assert (job.state, job.outcome, job.reason) == ("failed", None, "no such folder")


def test_open_jobs_come_oldest_first_and_by_kind(journal: SqliteJournal) -> None:
    events = [changed(f"/{number}") for number in range(5)]
    for event in events:
        journal.accept(event, "event")
    question = new_event(QueryAsked(task="x"), "skillbus/test")
    journal.accept(question, "query", seconds=5)
    assert journal.open_jobs("event") == [event.id for event in events]
    assert journal.open_jobs("event", limit=2) == [event.id for event in events[:2]]
    assert journal.open_jobs("query") == [question.id]
    assert journal.job(question.id).seconds_left is not None


def test_states_of_those_that_are_known(journal: SqliteJournal) -> None:
    one, two = changed(), changed()
    for event in (one, two):
        journal.accept(event, "event")
    journal.fail(two.id, "why")
    assert journal.states([one.id, two.id, "unknown"]) == {
        one.id: ("accepted", ""),
        two.id: ("failed", "why"),
    }


def test_failures_newest_first(journal: SqliteJournal) -> None:
    events = [changed() for _ in range(3)]
    for number, event in enumerate(events):
        journal.accept(event, "event")
        journal.fail(event.id, str(number))
    assert [job.reason for job in journal.failures(2)] == ["2", "1"]


def test_forgetting_leaves_what_is_open(journal: SqliteJournal) -> None:
    done, still_open = changed(), changed()
    for event in (done, still_open):
        journal.accept(event, "event")
    journal.finish(done.id)
    assert journal.forget("event", 60) == 0
    assert journal.forget("event", -60) == 1
    assert journal.open_jobs("event") == [still_open.id]
    with pytest.raises(UsageError, match="no event or query"):
        journal.job(done.id)


def test_an_unknown_id_is_an_error_of_the_caller(journal: SqliteJournal) -> None:
    with pytest.raises(UsageError, match="'absent'"):
        journal.job("absent")


def test_what_was_accepted_is_there_after_reopening(path: Path) -> None:
    first = SqliteJournal(path)
    event = changed()
    first.accept(event, "event")
    first.close()
    second = SqliteJournal(path)
    assert second.open_jobs("event") == [event.id]
    second.close()


def test_what_was_acknowledged_survives_a_kill(path: Path) -> None:
    program = textwrap.dedent(
        """
        import os, signal, sys
        from skills.events import SourceChanged, new_event
        from tasks.sqlite_journal import SqliteJournal

        journal = SqliteJournal(sys.argv[1])
        for number in range(20):
            event = new_event(SourceChanged(source_id="team", root=f"/{number}"), "skillbus/test")
            journal.accept(event, "event")
            os.write(1, f"{event.id}\\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    run = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=60
    )
    assert run.returncode == -9, run.stderr
    journal = SqliteJournal(path)
    assert journal.open_jobs("event") == run.stdout.split()
    journal.close()


def test_many_threads_accept_each_event_once(journal: SqliteJournal) -> None:
    events = [changed() for _ in range(20)]
    accepted: list[str] = []

    def work() -> None:
        accepted.extend(event.id for event in events if journal.accept(event, "event"))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(accepted) == sorted(event.id for event in events)
    assert len(journal.open_jobs("event")) == len(events)


def test_a_locked_journal_is_transient_and_loses_nothing(path: Path) -> None:
    journal = SqliteJournal(path)
    journal._connection.execute("PRAGMA busy_timeout=20")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    event = changed()
    with pytest.raises(TransientError, match="cannot be written"):
        journal.accept(event, "event")
    other.execute("ROLLBACK")
    other.close()
    assert journal.accept(event, "event")
    journal.close()


def test_a_full_disk_is_transient_and_a_retry_works(path: Path) -> None:
    journal = SqliteJournal(path)
    pages = journal._connection.execute("PRAGMA page_count").fetchone()[0]
    journal._connection.execute(f"PRAGMA max_page_count={pages}")
    big = new_event(QueryAsked(task="x" * 200_000), "test")
    with pytest.raises(TransientError, match="full"):
        journal.accept(big, "query")
    journal._connection.execute("PRAGMA max_page_count=100000")
    assert journal.accept(big, "query")
    journal.close()


@pytest.mark.parametrize(
    "content", [b"not a database at all, but long enough to be read", b"x" * 5000]
)
def test_a_damaged_file_says_what_to_do(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(PermanentError, match="move it away"):
        SqliteJournal(path)


def test_damage_that_shows_later_says_what_to_do(path: Path) -> None:
    journal = SqliteJournal(path)
    events = [changed("/x" * 50) for _ in range(300)]
    for event in events:
        journal.accept(event, "event")
    journal.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + b"\xff" * (len(whole) - 8192))
    damaged = SqliteJournal(path)
    for use in (
        lambda: damaged.open_jobs("event"),
        lambda: damaged.job(events[5].id),
        lambda: damaged.states([events[5].id]),
        lambda: damaged.accept(changed(), "event"),
        lambda: damaged.finish(events[7].id),
    ):
        with pytest.raises(PermanentError, match="move it away"):
            use()
    damaged.close()


def test_a_lock_on_opening_is_no_damage(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect

    def impatient(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        return connect(*args, **(kwargs | {"timeout": 0.01}))

    other = connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    monkeypatch.setattr(sqlite3, "connect", impatient)
    with pytest.raises(TransientError, match="another process"):
        SqliteJournal(path)
    other.execute("ROLLBACK")
    other.close()
    SqliteJournal(path).close()


def test_a_folder_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="cannot be opened"):
        SqliteJournal(tmp_path / "absent" / "journal.db")


def test_another_schema_is_refused(path: Path) -> None:
    SqliteJournal(path).close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE meta SET schema_version = 99")
    connection.commit()
    connection.close()
    with pytest.raises(PermanentError, match="schema 99"):
        SqliteJournal(path)


def test_in_memory_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    journal = SqliteJournal(":memory:")
    journal.accept(changed(), "event")
    assert len(journal.open_jobs("event")) == 1
    journal.close()
    assert list(tmp_path.iterdir()) == []
