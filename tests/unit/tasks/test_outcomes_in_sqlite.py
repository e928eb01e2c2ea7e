"""Deletion from the store of outcomes in SQLite: other processes write between its batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from skills.outcomes.model import SECONDS_PER_DAY, AnsweredQuery, Outcome, OutcomeKind, Reporter
from tasks.outcomes import protocol, sqlite_deletion
from tasks.outcomes.sqlite import SqliteOutcomeStore
from tasks.sqlite_file import SqliteFile
from tests.support.samples.reopened import reopening

Reopen = Callable[[], SqliteOutcomeStore]
DAY = 20_000
NOON = (DAY + 0.5) * SECONDS_PER_DAY


@pytest.fixture
def reopen(tmp_path: Path) -> Iterator[Reopen]:
    with reopening(lambda: SqliteOutcomeStore(tmp_path / "outcomes.db")) as reopened:
        yield reopened


def answer(query_id: str, owner: str = "ann") -> AnsweredQuery:
    return AnsweredQuery(query_id, owner, "", "clean the tracks", NOON, hit=True)


def outcome(key: str, query_id: str, owner: str = "ann") -> Outcome:
    return Outcome(key, query_id, "lib:one", OutcomeKind.HELPED, Reporter.AGENT, owner, NOON)


def run_after_listing(
    monkeypatch: pytest.MonkeyPatch, table: str, meanwhile: Callable[[], None]
) -> None:
    """Run something between the listing of an owner's rows of a table and their deletion."""
    read = SqliteFile.read

    def read_and_run(file: SqliteFile, statement: str, values: Sequence[object] = ()) -> Any:
        found = read(file, statement, values)
        if f"FROM {table} WHERE owner" in statement:
            monkeypatch.setattr(SqliteFile, "read", read)
            meanwhile()
        return found

    monkeypatch.setattr(SqliteFile, "read", read_and_run)


def test_reports_after_a_withdrawal_count_if_the_clock_was_set_back(
    reopen: Reopen, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = reopen()
    store.add_answers([answer("q1")])
    ahead = time.time() + 3_600
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: ahead)
        store.forget_outcomes("q1")
    assert store.add_outcomes([outcome("a", "q1")], ahead - 1) == 0, "accepted before it"
    assert store.add_outcomes([outcome("b", "q1")], time.time()) == 1


def test_a_row_that_got_the_number_of_a_deleted_one_stays(
    reopen: Reopen, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = reopen(), reopen()
    store.add_answers([answer("q1"), answer("q2")])

    def replace_last() -> None:
        other.drop_answers(["q2"])
        other.add_answers([answer("his", "bob")])
        other.add_outcomes([outcome("k", "his", "bob")])

    run_after_listing(monkeypatch, "answers", replace_last)
    assert store.forget_owner("ann") == 0
    assert list(store.get_answers(["q1", "q2", "his"])) == ["his"]
    assert dict(store.count_outcomes()) == {"bob": 1}


def test_outcomes_that_another_process_deleted_change_nothing(
    reopen: Reopen, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = reopen(), reopen()
    store.add_answers([answer("q1", "bob")])
    store.add_outcomes([outcome("k", "q1")])
    run_after_listing(monkeypatch, "outcomes", lambda: forget(other))
    assert store.forget_owner("ann") == 0
    assert store.get_epoch() == 2


def forget(store: SqliteOutcomeStore) -> None:
    store.forget_owner("ann")


def test_old_tombstones_are_looked_for_once_and_deleted_in_batches(
    reopen: Reopen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_deletion, "DELETED_AT_ONCE", 2)
    monkeypatch.setattr(sqlite_deletion, "TOMBSTONES_AT_ONCE", 4)
    store = reopen()
    names = [f"q{number}" for number in range(9)]
    for owner in ("ann", "bob"):
        store.add_answers([answer(owner + name, owner) for name in names])
    store.add_outcomes([outcome(f"k{name}", f"ann{name}") for name in names])
    store.forget_owner("ann")
    later = time.time() + protocol.KEPT_TOMBSTONE_SECONDS + 60
    monkeypatch.setattr(time, "time", lambda: later)
    store.save_day(DAY, store.list_changed_days()[DAY], b"")
    statements: list[str] = []
    connection = store._file.connection
    connection.set_trace_callback(statements.append)
    assert store.prune_days(DAY + 1) == len(names)
    connection.set_trace_callback(None)
    looked = [one for one in statements if "forgotten WHERE deleted" in one]
    assert len(looked) == 3
    assert sum("BEGIN" in one for one in statements) == 1 + 6 + 3
    assert store.get_changes(0).query_ids == ()
    (plan,) = connection.execute(f"EXPLAIN QUERY PLAN {looked[0]}").fetchall()
    assert "USING INDEX forgotten_by_time" in plan[3]


def test_a_contributor_is_on_the_disk_when_it_is_recorded(reopen: Reopen) -> None:
    store = reopen()
    statements: list[str] = []
    store._file.connection.set_trace_callback(statements.append)
    store.add_contributor("lib", "ann")
    assert statements[0] == "PRAGMA synchronous=FULL"
