"""Days of every `OutcomeStore`: rolled up, pruned, merged and forgotten, with exact counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from config.errors import NotFoundError
from config.server_settings import ServerSettings
from skills.outcomes.model import SECONDS_PER_DAY, AnsweredQuery, AnsweredSkill, Outcome, Reporter
from skills.outcomes.model import OutcomeKind as Kind
from tasks.broker.redis_connection import connect
from tasks.outcomes.protocol import KEPT_TOMBSTONE_SECONDS, OutcomeStore
from tasks.outcomes.redis import RedisOutcomeStore
from tasks.outcomes.sqlite import SqliteOutcomeStore
from tasks.outcomes.usage.codec import load_usage
from tasks.outcomes.usage.forget import forget_owner, has_owner
from tasks.outcomes.usage.model import Usage, count_by_name
from tasks.outcomes.usage.roll_up import merge_months, roll_up_days
from tasks.outcomes.usage.window import read_usage
from tests.support.program.fresh_processes import FRESH
from tests.support.samples.reopened import reopening
from tests.support.servers.redis_database import redis_settings

__all__ = ["redis_settings"]

Reopen = Callable[[], OutcomeStore]
Place = Path | ServerSettings
DAY = 20_454
"""1 January 2026."""
NOON = (DAY + 0.5) * SECONDS_PER_DAY


def open_at(place: Place) -> OutcomeStore:
    """The store of a place, from any process."""
    if isinstance(place, ServerSettings):
        return RedisOutcomeStore(connect(place, binary=True), place)
    return SqliteOutcomeStore(place)


@pytest.fixture(params=["sqlite", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return tmp_path / "outcomes.db"
    settings: ServerSettings = request.getfixturevalue("redis_settings")
    return settings


@pytest.fixture
def reopen(place: Place) -> Iterator[Reopen]:
    with reopening(lambda: open_at(place)) as reopened:
        yield reopened


@pytest.fixture
def store(reopen: Reopen) -> OutcomeStore:
    return reopen()


def answer(query_id: str, owner: str = "ann", day: int = DAY, hit: bool = True) -> AnsweredQuery:
    at = (day + 0.5) * SECONDS_PER_DAY
    skills = (AnsweredSkill("lib:one", 7, 1, tokens=120),) if hit else ()
    return AnsweredQuery(query_id, owner, "", "clean the tracks", at, hit, skills=skills)


def helped(key: str, query_id: str, owner: str = "ann", at: float = NOON) -> Outcome:
    return Outcome(key, query_id, "lib:one", Kind.HELPED, Reporter.AGENT, owner, at)


def roll(store: OutcomeStore) -> int:
    return roll_up_days(store, lambda: None)


def stored(store: OutcomeStore, first: int = 0, last: int = DAY + 400) -> list[Usage]:
    return [load_usage(data) for data in store.get_days(first, last).values()]


def total(store: OutcomeStore, counter: str) -> int:
    return sum(
        count_by_name(row)[counter]
        for usage in stored(store)
        for group in usage.groups.values()
        for row in group.skills.values()
    )


class TestRollUp:
    def test_an_outcome_counts_on_the_day_of_its_query(self, reopen: Reopen) -> None:
        store = reopen()
        store.add_answers([answer("q1"), answer("q2", day=DAY + 1)])
        assert roll(store) == 2
        assert roll(store) == 0
        store.add_outcomes([helped("k", "q1", at=NOON + 9 * SECONDS_PER_DAY)])
        assert list(store.list_changed_days()) == [DAY]
        assert roll(reopen()) == 1
        [first, second] = stored(store)
        assert first.groups["ann", "ann"].totals["helped/agent"] == 1
        assert second.groups["ann", "ann"].totals["helped/agent"] == 0
        assert (total(store, "helped"), total(store, "chosen")) == (1, 2)

    def test_what_comes_twice_changes_no_day(self, store: OutcomeStore) -> None:
        store.add_answers([answer("q1")])
        store.add_outcomes([helped("k", "q1")])
        roll(store)
        store.add_answers([answer("q1")])
        store.add_outcomes([helped("k", "q1")])
        assert store.list_changed_days() == {}

    def test_a_day_that_changes_while_it_is_counted_is_counted_again(
        self, store: OutcomeStore
    ) -> None:
        store.add_answers([answer("q1")])
        pauses: list[int] = []

        def write_meanwhile() -> None:
            if not pauses:
                store.add_outcomes([helped("k", "q1")])
            pauses.append(1)

        roll_up_days(store, write_meanwhile)
        assert list(store.list_changed_days()) == [DAY]
        roll(store)
        assert total(store, "helped") == 1

    def test_a_reader_sees_what_is_not_rolled_up(self, store: OutcomeStore) -> None:
        store.add_answers([answer("q1"), answer("q2", day=DAY + 1)])
        roll(store)
        store.add_answers([answer("q3"), answer("q4", day=DAY + 1)])
        window = read_usage(store, DAY, DAY + 1)
        assert [usage.groups["ann", "ann"].totals["queries"] for usage in window.days] == [2, 2]
        assert window.behind == ()
        # The newest day comes first; the other one is too large, and shown as it was rolled up.
        window = read_usage(store, DAY, DAY + 1, max_queries=3)
        assert [usage.groups["ann", "ann"].totals["queries"] for usage in window.days] == [1, 2]
        assert window.behind == (DAY,)
        assert read_usage(store, DAY + 2, DAY + 9).days == ()


class TestPruning:
    def test_rows_go_and_their_usage_stays(self, reopen: Reopen) -> None:
        store = reopen()
        store.add_answers([answer("old"), answer("bare"), answer("new", day=DAY + 3)])
        store.add_outcomes([helped("k1", "old", at=NOON + 5 * SECONDS_PER_DAY)])
        store.add_outcomes([helped("k2", "new", at=NOON + 5 * SECONDS_PER_DAY)])
        roll(store)
        before, epoch = stored(store), store.get_changes(0).epoch
        assert store.prune_days(DAY + 1) == 2
        assert store.prune_days(DAY + 1) == 0
        assert stored(reopen()) == before
        assert list(store.get_answers(["old", "bare", "new"])) == ["new"]
        assert [one.key for one in store.list_outcomes()] == ["k2"]
        assert dict(store.count_outcomes()) == {"ann": 1}
        assert store.get_changes(epoch).query_ids == ("old",)
        assert store.list_changed_days() == {}

    def test_a_day_that_is_not_rolled_up_is_kept(self, store: OutcomeStore) -> None:
        store.add_answers([answer("q1")])
        assert store.prune_days(DAY + 1) == 0
        roll(store)
        store.add_outcomes([helped("k", "q1")])
        assert store.prune_days(DAY + 1) == 0
        assert list(store.get_answers(["q1"])) == ["q1"]
        roll(store)
        assert store.prune_days(DAY) == 0
        assert store.prune_days(DAY + 1) == 1
        assert total(store, "helped") == 1

    def test_nothing_is_added_to_a_pruned_day(self, store: OutcomeStore) -> None:
        store.add_answers([answer("q1")])
        roll(store)
        store.prune_days(DAY + 1)
        with pytest.raises(NotFoundError, match="q1"):
            store.add_outcomes([helped("k", "q1")])
        store.add_answers([answer("q1"), answer("late")])
        assert store.get_answers(["q1", "late"]) == {}
        store.save_day(DAY, 99, b"")
        assert total(store, "chosen") == 1
        assert roll(store) == 0

    def test_the_feed_forgets_pruned_queries_in_time(
        self, store: OutcomeStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.add_answers([answer("q1"), answer("q2"), answer("new", day=DAY + 3)])
        store.add_outcomes([helped("k1", "q1"), helped("k2", "q2", ""), helped("k3", "new")])
        # Its query stays, without outcomes.
        store.forget_owner("")
        roll(store)
        assert store.prune_days(DAY + 1) == 2
        assert set(store.get_changes(0).query_ids) == {"q1", "q2", "new"}
        later = time.time() + KEPT_TOMBSTONE_SECONDS + 60
        monkeypatch.setattr(time, "time", lambda: later)
        store.prune_days(DAY + 1)
        assert store.get_changes(0).query_ids == ("new",)

    def test_days_are_merged_into_months(self, store: OutcomeStore) -> None:
        february = DAY + 31
        store.add_answers(
            [answer("a"), answer("b", day=DAY + 30), answer("c", day=february), answer("d", "bob")]
        )
        store.add_outcomes([helped("k", "b")])
        roll(store)
        store.prune_days(february + 1)
        assert merge_months(store, february + 1_000) == 1  # the days that are kept were reduced
        assert merge_months(store, february + 28) == 0
        [january, other] = stored(store)
        assert (january.first, january.last, other.first) == (DAY, february - 1, february)
        assert january.groups["ann", "ann"].totals["queries"] == 2
        assert january.groups["bob", "bob"].skills["lib:one"][0] == 1
        assert (total(store, "chosen"), total(store, "helped")) == (4, 1)

    def test_a_month_with_queries_is_not_merged(self, store: OutcomeStore) -> None:
        store.add_answers([answer("a"), answer("b", day=DAY + 1)])
        roll(store)
        store.prune_days(DAY + 1)
        before = store.get_days(DAY, DAY + 30)
        merge_months(store, DAY + 60)
        assert store.get_days(DAY, DAY + 30) == before


class TestForgetting:
    def test_an_owner_is_forgotten_as_if_it_had_never_been(self, store: OutcomeStore) -> None:
        days = (DAY, DAY + 40)
        for day in days:
            store.add_answers([answer(f"ann{day}", day=day), answer(f"bob{day}", "bob", day)])
            store.add_outcomes(
                [helped(f"a{day}", f"ann{day}"), helped(f"b{day}", f"bob{day}", "bob"),
                 helped(f"r{day}", f"bob{day}", "")]
            )  # fmt: skip
        roll(store)
        store.prune_days(DAY + 1)
        assert forget_owner(store, "bob") == 2
        roll(store)
        assert [list(usage.groups) for usage in stored(store)] == [[("ann", "ann")]] * 2
        assert (total(store, "chosen"), total(store, "helped")) == (2, 2)
        assert (has_owner(store, "ann"), has_owner(store, "bob")) == (True, False)

    def test_an_owner_of_queries_or_counts_alone_is_known(self, store: OutcomeStore) -> None:
        store.add_answers([answer("q1", "bob"), answer("q2", "eve", DAY + 40)])
        roll(store)
        store.prune_days(DAY + 1)
        assert all(has_owner(store, owner) for owner in ("bob", "eve"))
        assert not has_owner(store, "ann")

    def test_what_was_reported_about_others_goes_too(self, store: OutcomeStore) -> None:
        store.add_answers([answer("q1", "bob"), answer("q2", "bob", DAY + 40)])
        store.add_outcomes([helped("k1", "q1", ""), helped("k2", "q2", ""), helped("k3", "q2")])
        roll(store)
        store.prune_days(DAY + 1)
        assert forget_owner(store, "") == 1
        roll(store)
        assert (total(store, "chosen"), total(store, "helped")) == (2, 1)

    def test_queries_forgotten_by_age_are_not_counted(self, store: OutcomeStore) -> None:
        store.add_answers([answer("q1"), replace(answer("q2"), answered=NOON + 60)])
        store.add_outcomes([helped("k", "q1"), helped("l", "q2")])
        roll(store)
        store.forget_before(NOON + 30)
        roll(store)
        assert (total(store, "chosen"), total(store, "helped")) == (1, 1)


# -- processes that are killed
QUERIES = 150


def write_all(store: OutcomeStore) -> None:
    """Queries of three days, an outcome of each, a roll-up after every tenth, and pruning."""
    for number in range(QUERIES):
        store.add_answers([answer(f"q{number}", day=DAY + number % 3)])
        if f"q{number}" in store.get_answers([f"q{number}"]):  # its day may be pruned
            store.add_outcomes([helped(f"k{number}", f"q{number}")])
        if number % 10 == 0:
            roll(store)


def write_at(place: Place) -> None:
    store = open_at(place)
    write_all(store)
    store.close()


def prune_at(place: Place) -> None:
    store = open_at(place)
    while True:
        store.prune_days(DAY + 2)
        merge_months(store, DAY + 40)


def test_counts_are_exact_after_kills(place: Place, tmp_path: Path) -> None:
    undisturbed = SqliteOutcomeStore(tmp_path / "undisturbed.db")
    write_all(undisturbed)
    roll(undisturbed)
    store = open_at(place)
    for seen in (1, 60):
        writer = FRESH.Process(target=write_at, args=(place,))
        writer.start()
        while writer.is_alive() and f"q{seen}" not in store.get_answers([f"q{seen}"]):
            time.sleep(0.001)
        writer.kill()
        writer.join()
    write_all(store)
    roll(store)
    assert stored(store) == stored(undisturbed)

    pruner = FRESH.Process(target=prune_at, args=(place,))
    pruner.start()
    while "q0" in store.get_answers(["q0"]):
        time.sleep(0.001)
    pruner.kill()
    pruner.join()
    store.prune_days(DAY + 2)
    assert list(store.get_answers([f"q{number}" for number in range(QUERIES)])) == [
        f"q{number}" for number in range(2, QUERIES, 3)
    ]
    assert stored(store) == stored(undisturbed)
    undisturbed.close()
    store.close()
