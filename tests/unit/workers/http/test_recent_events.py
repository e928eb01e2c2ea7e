"""The list of events over HTTP: those of its caller, open or ended within the last hour."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from config.errors import UsageError
from skills.access import UNRESTRICTED
from skills.events import QueryAsked, SourceChanged, new_event, replace_origin
from skills.events.requests import Request
from tasks.journal.protocol import job_id
from tasks.journal.sqlite import SqliteJournal
from workers.http.authentication import LOCAL_USER, Caller
from workers.http.jobs import get_visible_job
from workers.http.routes.operations.events import list_recent_events
from workers.http.tokens import TokenScope

MANY = 101
READER = Caller("reader", TokenScope.READ)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqliteJournal]:
    journal = SqliteJournal(tmp_path / "journal.db")
    yield journal
    journal.close()


def add(journal: SqliteJournal, owner: str, data: Request | None = None) -> str:
    """The id of an open job of an owner."""
    event = new_event(data or SourceChanged(source_id="team", root="/skills"), "tests")
    event = replace_origin(event, owner, UNRESTRICTED)
    journal.add_job(event, "query" if isinstance(data, QueryAsked) else "event")
    return job_id(event)


def list_ids(journal: SqliteJournal, caller: Caller) -> list[str]:
    settings = SimpleNamespace(workers=SimpleNamespace(open_events=1_000))
    backend: Any = SimpleNamespace(journal=journal, settings=settings)
    return [one.id for one in list_recent_events(backend, caller)]


@pytest.mark.parametrize("state", ["accepted", "done", "failed"])
def test_many_events_of_others_hide_none_of_the_callers(journal: SqliteJournal, state: str) -> None:
    ids = [add(journal, owner) for owner in ("reader", *("other",) * MANY)]
    for one in ids:
        if state == "done":
            journal.finish_job(one)
        elif state == "failed":
            journal.fail_job(one, "why")
    assert list_ids(journal, READER) == ids[:1]
    assert list_ids(journal, LOCAL_USER) == ids[:1:-1]


def test_the_newest_of_many_open_events_are_listed(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if more are open than the journal lists unless asked for more."""
    monkeypatch.setattr(SqliteJournal.list_open_jobs, "__defaults__", (2,))
    ids = [add(journal, "reader") for _ in range(3)]
    assert list_ids(journal, READER) == ids[::-1]


def test_events_are_read_together(journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [add(journal, "reader") for _ in range(3)]
    monkeypatch.setattr(SqliteJournal, "get_job", None)
    assert list_ids(journal, READER) == ids[::-1]


def test_an_event_of_another_version_is_listed_with_its_error(journal: SqliteJournal) -> None:
    ids = [add(journal, "reader") for _ in range(3)]
    with journal._database.transaction() as connection:
        for place, change in ((0, ("source_id", "root_of")), (1, (".v1", ".v9"))):
            connection.execute(
                "UPDATE jobs SET payload = replace(payload, ?, ?) WHERE id = ?",
                (*change, ids[place]),
            )
    backend: Any = SimpleNamespace(
        journal=journal, settings=SimpleNamespace(workers=SimpleNamespace(open_events=9))
    )
    listed = list_recent_events(backend, READER)
    assert [one.id for one in listed] == ids[::-1]
    assert [one.subject for one in listed] == ["team", "", ""]
    assert listed[0].reason == ""
    assert "version 9 of skillbus.source.changed is not known" in listed[1].reason
    assert "source_id" in listed[2].reason
    assert get_visible_job(backend, READER, ids[0], "event").state == "accepted"
    with pytest.raises(UsageError):
        journal.get_job(ids[0])


def test_failed_queries_hide_no_failed_events(journal: SqliteJournal) -> None:
    event = add(journal, "reader")
    journal.fail_job(event, "why")
    for _ in range(MANY):
        journal.fail_job(add(journal, "reader", QueryAsked(task="x")), "why")
    assert list_ids(journal, READER) == [event]


def test_events_that_failed_earlier_are_left_out(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = add(journal, "reader")
    journal.fail_job(event, "why")
    assert list_ids(journal, READER) == [event]
    later = time.time() + 3_700
    monkeypatch.setattr(time, "time", lambda: later)
    assert list_ids(journal, READER) == []
