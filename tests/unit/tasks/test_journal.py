"""What is particular to the journal in SQLite: locks, full disks, damage, other schemas.

What every journal does is tested in `tests/contract`.
"""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

from config.errors import PermanentError, TransientError
from skills.events import Event, QueryAsked, SourceChanged, new_event
from tasks.journal.protocol import JobKind
from tasks.journal.sqlite import SqliteJournal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def changed(root: str = "/skills") -> Event:
    return new_event(SourceChanged(source_id="team", root=root), "skillbus/test")


def test_only_the_owner_can_read_the_files(path: Path) -> None:
    journal = SqliteJournal(path)
    assert journal.add_job(changed(), "event")
    files = sorted(path.parent.iterdir())
    assert len(files) == 3
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    SqliteJournal(path).close()
    journal.close()


@pytest.mark.parametrize(
    ("kind", "replyto", "level"),
    [("event", "", "FULL"), ("query", "", "NORMAL"), ("query", "skillbus.replies.a", "FULL")],
)
def test_only_a_query_without_a_reply_queue_does_not_wait_for_the_disk(
    path: Path, kind: JobKind, replyto: str, level: str
) -> None:
    journal = SqliteJournal(path)
    statements: list[str] = []
    journal._database.connection.set_trace_callback(statements.append)
    event = changed() if kind == "event" else new_event(QueryAsked(task="knot a rope"), "test")
    assert journal.add_job(event.model_copy(update={"replyto": replyto}), kind)
    assert statements[0] == f"PRAGMA synchronous={level}"
    journal.close()


def test_a_wrong_statement_is_not_called_damage(path: Path) -> None:
    journal = SqliteJournal(path)
    file = journal._database
    with pytest.raises(sqlite3.ProgrammingError, match="not supported"), file.reading() as db:
        db.execute("SELECT ?", ({},))
    with pytest.raises(sqlite3.IntegrityError), file.transaction() as db:
        db.execute("INSERT INTO meta VALUES (NULL)")
    assert journal.add_job(changed(), "event")
    journal.close()


def test_a_closed_journal_is_not_called_damaged(path: Path) -> None:
    journal = SqliteJournal(path)
    journal.close()
    with pytest.raises(TransientError, match=r"cannot be read: .*closed"):
        journal.list_open_jobs("event")
    with pytest.raises(TransientError, match=r"cannot be written: .*closed"):
        journal.add_job(changed(), "event")


def test_a_locked_journal_is_transient_and_loses_nothing(path: Path) -> None:
    journal = SqliteJournal(path)
    journal._database.connection.execute("PRAGMA busy_timeout=20")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    event = changed()
    with pytest.raises(TransientError, match="cannot be written"):
        journal.add_job(event, "event")
    other.execute("ROLLBACK")
    other.close()
    assert journal.add_job(event, "event")
    journal.close()


def test_a_full_disk_is_transient_and_a_retry_works(path: Path) -> None:
    journal = SqliteJournal(path)
    pages = journal._database.connection.execute("PRAGMA page_count").fetchone()[0]
    journal._database.connection.execute(f"PRAGMA max_page_count={pages}")
    big = new_event(QueryAsked(task="x" * 200_000), "test")
    with pytest.raises(TransientError, match="full"):
        journal.add_job(big, "query")
    journal._database.connection.execute("PRAGMA max_page_count=100000")
    assert journal.add_job(big, "query")
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
        journal.add_job(event, "event")
    journal.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + b"\xff" * (len(whole) - 8192))
    damaged = SqliteJournal(path)
    for use in (
        lambda: damaged.list_open_jobs("event"),
        lambda: damaged.get_job(events[5].id),
        lambda: damaged.get_job_states([events[5].id]),
        lambda: damaged.add_job(changed(), "event"),
        lambda: damaged.finish_job(events[7].id),
    ):
        with pytest.raises(PermanentError, match="move it away"):
            use()
    damaged.close()


def test_a_locked_file_is_not_reported_as_damaged(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect

    def impatient(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        opened: sqlite3.Connection = connect(*args, **(kwargs | {"timeout": 0.01}))
        return opened

    other = connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    monkeypatch.setattr(sqlite3, "connect", impatient)
    with pytest.raises(TransientError, match="another process"):
        SqliteJournal(path)
    other.execute("ROLLBACK")
    other.close()
    SqliteJournal(path).close()


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match=r"cannot be opened .*; check its permissions"):
        SqliteJournal(tmp_path / "absent" / "journal.db")


def test_another_schema_is_refused(path: Path) -> None:
    SqliteJournal(path).close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE meta SET schema_version = 99")
    connection.commit()
    connection.close()
    with pytest.raises(PermanentError, match="schema 99"):
        SqliteJournal(path)


FIRST_SCHEMA = """
CREATE TABLE meta (schema_version INTEGER NOT NULL);
INSERT INTO meta VALUES (1);
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY, source TEXT NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL,
    payload TEXT NOT NULL, state TEXT NOT NULL CHECK (state IN ('accepted', 'done', 'failed')),
    outcome TEXT, reason TEXT NOT NULL DEFAULT '', accepted REAL NOT NULL, expires REAL,
    finished REAL, UNIQUE (source, id)
);
CREATE INDEX jobs_open ON jobs (kind, number) WHERE state = 'accepted';
CREATE INDEX jobs_id ON jobs (id);
"""


def test_a_journal_of_the_first_schema_is_migrated(path: Path) -> None:
    event = changed()
    connection = sqlite3.connect(path)
    connection.executescript(FIRST_SCHEMA)
    connection.execute(
        "INSERT INTO jobs VALUES (7, ?, ?, 'event', ?, 'accepted', NULL, '', 1.5, NULL, NULL)",
        (event.source, event.id, event.model_dump_json()),
    )
    connection.commit()
    connection.close()
    for _ in range(2):
        journal = SqliteJournal(path)
        assert journal.list_open_jobs("event") == [event.id]
        assert journal.get_job(event.id).event == event
        assert not journal.add_job(event, "event")
        journal.close()
    journal = SqliteJournal(path)
    assert journal.cancel_job(event.id)
    assert journal.get_job(event.id).state == "cancelled"
    journal.close()


def test_ended_jobs_are_found_by_an_index(path: Path) -> None:
    # The reconciler looks for them every few seconds, among thousands of answers.
    journal = SqliteJournal(path)
    event = changed()
    journal.add_job(event, "event")
    journal.finish_job(event.id)
    statements: list[str] = []
    connection = journal._database.connection
    connection.set_trace_callback(statements.append)
    assert journal.list_ended_jobs("event", 0.0).job_ids == (event.id,)
    assert journal.delete_ended_jobs("event", -60.0) == 1
    connection.set_trace_callback(None)
    found = [one for one in statements if "FROM jobs" in one]
    assert len(found) == 2
    for statement in found:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
        assert ["USING INDEX jobs_ended (kind=? AND finished" in one[3] for one in plan] == [True]
    journal.close()


def test_in_memory_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    journal = SqliteJournal(":memory:")
    journal.add_job(changed(), "event")
    assert len(journal.list_open_jobs("event")) == 1
    journal.close()
    assert list(tmp_path.iterdir()) == []
