"""What every `OutcomeStore` does. A new implementation adds its opener to `reopen`."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from config.errors import NotFoundError, PermanentError
from config.server_settings import ServerSettings
from skills.outcomes.model import (
    SECONDS_PER_DAY,
    AnsweredQuery,
    AnsweredSkill,
    LostSkill,
    Outcome,
    OutcomeKind,
    Reporter,
)
from tasks.broker.redis_connection import connect
from tasks.outcomes import protocol, redis_scripts
from tasks.outcomes.protocol import AnswerPlace, OutcomeStore, StoredVector, TaskVectors
from tasks.outcomes.redis import RedisOutcomeStore
from tasks.outcomes.sqlite import SqliteOutcomeStore
from tests.support.samples.reopened import reopening
from tests.support.servers.redis_database import redis_settings

__all__ = ["redis_settings"]

Reopen = Callable[[], OutcomeStore]
DAY = 20_000
NOON = (DAY + 0.5) * SECONDS_PER_DAY


@pytest.fixture(params=["sqlite", "redis"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reopen]:
    def open_store() -> OutcomeStore:
        if request.param == "sqlite":
            return SqliteOutcomeStore(tmp_path / "outcomes.db")
        settings: ServerSettings = request.getfixturevalue("redis_settings")
        return RedisOutcomeStore(connect(settings, binary=True), settings)

    with reopening(open_store) as reopened:
        yield reopened


@pytest.fixture
def store(reopen: Reopen) -> OutcomeStore:
    return reopen()


def answer(query_id: str, owner: str = "ann", session: str = "", at: float = NOON) -> AnsweredQuery:
    return AnsweredQuery(
        query_id,
        owner,
        session,
        f"clean the tracks of “{query_id}”",
        at,
        hit=True,
        probability=0.75,
        skills=(
            AnsweredSkill("lib:one", 7, 1, tokens=120, lines=((3, 9), (12, 12))),
            AnsweredSkill("lib:two", 8, 2, sent=False),
        ),
        lost=(LostSkill("lib:copy", "lib:one"),),
    )


def outcome(key: str, query_id: str, owner: str = "ann", at: float = NOON) -> Outcome:
    return Outcome(
        key, query_id, "lib:one", OutcomeKind.HELPED, Reporter.VERIFIER, owner, at, place=1
    )


def ids(found: OutcomeStore, after: int = 0) -> tuple[str, ...]:
    return found.get_changes(after).query_ids


# -- answered queries


def test_an_answer_is_read_as_it_was_stored(reopen: Reopen) -> None:
    first = answer("q1", session="s")
    reopen().add_answers([first])
    assert reopen().get_answers(["q2", "q1"]) == {"q1": first}


def test_the_first_answer_of_a_query_is_kept(store: OutcomeStore) -> None:
    first = answer("q1")
    store.add_answers([first, replace(first, task="other")])
    store.add_answers([replace(first, task="third", owner="bob")])
    assert store.get_answers(["q1"]) == {"q1": first}
    assert list(store.list_answers_of(DAY)) == [first]


def test_answers_are_dropped_as_if_they_had_not_been_stored(store: OutcomeStore) -> None:
    vectors = {"q1": StoredVector(np.ones(4, dtype=np.int8), 0.5)}
    store.add_answers([answer("q1", session="s"), answer("q2")], TaskVectors("m", vectors))
    store.add_outcomes([outcome("k", "q2")])
    version = store.list_changed_days()[DAY]
    store.drop_answers(["q1", "q2", "unknown"])
    assert list(store.get_answers(["q1", "q2"])) == ["q2"]
    assert store.list_session("ann", "s", 9) == []
    assert store.get_vectors("m", ["q1"]) == {}
    assert [one.query_id for one in store.list_answers_of(DAY)] == ["q2"]
    assert store.list_changed_days()[DAY] > version
    again = replace(answer("q1", session="s"), task="other")
    store.add_answers([again])
    assert store.list_session("ann", "s", 9) == [again]


def test_answers_without_skills_and_probability(store: OutcomeStore) -> None:
    bare = AnsweredQuery("q1", "", "", "", NOON, hit=False, is_use=False)
    store.add_answers([bare])
    assert store.get_answers(["q1"]) == {"q1": bare}


def test_a_session_belongs_to_its_owner(store: OutcomeStore) -> None:
    mine = [answer(f"q{number}", "ann", "s", NOON + number) for number in range(4)]
    store.add_answers(
        [*reversed(mine), answer("b", "bob", "s"), answer("o", "ann", "t"), answer("none", "ann")]
    )
    assert store.list_session("ann", "s", 10) == mine
    assert store.list_session("ann", "s", 2) == mine[2:]
    assert [one.query_id for one in store.list_session("bob", "s", 10)] == ["b"]
    assert store.list_session("eve", "s", 10) == []
    assert store.list_session("ann", "", 10) == []


# -- outcomes


def test_answers_are_read_newest_first(store: OutcomeStore) -> None:
    times = {"q1": NOON, "q2": NOON + 0.5, "q3": NOON, "q4": NOON - SECONDS_PER_DAY, "q5": NOON}
    store.add_answers([answer(query_id, at=at) for query_id, at in times.items()])
    store.forget_before(NOON - 1)
    read = []
    place = AnswerPlace(math.inf, "")
    while batch := store.list_answers_before(place, 2):
        assert len(batch) <= 2
        read += [one.query_id for one in batch]
        place = AnswerPlace(batch[-1].answered, batch[-1].query_id)
    assert read == ["q2", "q5", "q3", "q1"]


def test_outcomes_are_read_by_query_in_order_of_their_keys(reopen: Reopen) -> None:
    store = reopen()
    store.add_answers([answer("q1"), answer("q2")])
    one, two, three = outcome("k2", "q1"), outcome("k1", "q1", "bob"), outcome("k3", "q2")
    assert store.add_outcomes([one, two, three]) == 3
    assert reopen().get_outcomes(["q2", "q1", "q3"]) == {"q1": (two, one), "q2": (three,)}
    assert dict(store.count_outcomes()) == {"ann": 2, "bob": 1}


def test_all_fields_of_an_outcome_are_kept(store: OutcomeStore) -> None:
    store.add_answers([answer("q1")])
    full = Outcome(
        "k", "q1", "lib:öne", OutcomeKind.REJECTED, Reporter.PERSON, "", NOON + 0.25,
        reason="incompatible", other="lib:two", place=2, task_result="failed",
    )  # fmt: skip
    missing = Outcome("m", "q1", "", OutcomeKind.MISSING, Reporter.AGENT, "", NOON)
    store.add_outcomes([full, missing])
    assert store.get_outcomes(["q1"]) == {"q1": (full, missing)}


def test_an_outcome_counts_once_however_often_it_comes(store: OutcomeStore) -> None:
    store.add_answers([answer("q1")])
    first = outcome("k", "q1")
    assert store.add_outcomes([first, first]) == 1
    assert store.add_outcomes([replace(first, kind=OutcomeKind.FAILED)]) == 0
    assert store.get_outcomes(["q1"]) == {"q1": (first,)}
    assert dict(store.count_outcomes()) == {"ann": 1}


def test_outcomes_of_an_unknown_query_are_refused_whole(store: OutcomeStore) -> None:
    store.add_answers([answer("q1")])
    with pytest.raises(NotFoundError, match="q9"):
        store.add_outcomes([outcome("k1", "q1"), outcome("k2", "q9")])
    assert store.get_outcomes(["q1", "q9"]) == {}
    assert store.add_outcomes([]) == 0


def test_outcomes_of_a_query_are_limited_by_owner(store: OutcomeStore) -> None:
    most = protocol.MAX_OUTCOMES_PER_QUERY
    store.add_answers([answer("q1"), answer("q2")])
    full = [outcome(f"k{number}", "q1") for number in range(most)]
    assert store.add_outcomes([*full[:-1], full[0]]) == most - 1
    late = [outcome("late-1", "q1"), outcome("late-2", "q1")]
    for refused in (late, [late[0], outcome("k", "q2"), late[1]], [full[-1], late[0]]):
        with pytest.raises(PermanentError, match="'q1' has no room"):
            store.add_outcomes(refused)
    assert store.get_outcomes(["q2"]) == {}
    # What comes twice takes no room.
    assert store.add_outcomes([*full, full[-1]]) == 1
    assert store.add_outcomes(full) == 0
    assert store.add_outcomes([*full, outcome("his", "q1", "bob"), outcome("k", "q2")]) == 2
    with pytest.raises(PermanentError, match="'q1' has no room"):
        store.add_outcomes(late[:1])
    assert dict(store.count_outcomes()) == {"ann": most + 1, "bob": 1}


def test_all_outcomes_are_listed_by_time(store: OutcomeStore) -> None:
    store.add_answers([answer("q1"), answer("q2")])
    late = outcome("a", "q1", at=NOON + SECONDS_PER_DAY)
    early, same = outcome("c", "q2", at=NOON), outcome("b", "q1", at=NOON)
    store.add_outcomes([late, early, same])
    assert list(store.list_outcomes()) == [same, early, late]


# -- change feed


def test_the_feed_names_queries_whose_outcomes_changed(store: OutcomeStore) -> None:
    store.add_answers([answer("q1"), answer("q2"), answer("q3")])
    assert store.get_changes(0).query_ids == ()
    store.add_outcomes([outcome("k1", "q1"), outcome("k2", "q2")])
    first = store.get_changes(0)
    assert first.query_ids == ("q1", "q2")
    assert store.get_changes(first.epoch) == protocol.OutcomeChanges(first.epoch, ())
    store.add_outcomes([outcome("k1", "q1")])
    assert ids(store, first.epoch) == ()
    store.add_outcomes([outcome("k3", "q1")])
    assert ids(store, first.epoch) == ("q1",)
    assert ids(store) == ("q2", "q1")


def test_the_feed_names_queries_with_outcomes_that_get_a_vector(store: OutcomeStore) -> None:
    answers = [answer("q1"), answer("q2")]
    store.add_answers(answers)
    store.add_outcomes([outcome("k1", "q1")])
    epoch = store.get_epoch()
    vector = StoredVector(np.ones(4, dtype=np.int8), 0.5)
    vectors = {"q1": vector, "q2": vector, "unknown": vector}
    store.add_answers(answers, TaskVectors("m", vectors))
    assert ids(store, epoch) == ("q1",)
    epoch = store.get_epoch()
    store.add_answers(answers, TaskVectors("m", vectors))
    assert store.get_epoch() == epoch


def test_the_feed_is_read_in_parts(store: OutcomeStore) -> None:
    names = [f"q{number}" for number in range(7)]
    store.add_answers([answer(name) for name in names])
    store.add_outcomes([outcome(f"k{name}", name) for name in names])
    found: list[str] = []
    part = store.get_changes(0, 3)
    while True:
        found += part.query_ids
        if not part.more:
            break
        part = store.get_changes(part.epoch, 3)
    assert found == names


def test_the_epoch_never_falls(reopen: Reopen, monkeypatch: pytest.MonkeyPatch) -> None:
    store = reopen()
    assert store.get_epoch() == 0
    store.add_answers([answer("q1")])
    assert store.get_epoch() == 0
    store.add_outcomes([outcome("k1", "q1"), outcome("k2", "q1")])
    epoch = store.get_epoch()
    assert epoch == store.get_changes(0).epoch > 0
    store.forget_owner("ann")
    assert store.get_epoch() == store.get_changes(0).epoch > epoch
    epoch = store.get_epoch()
    later = time.time() + protocol.KEPT_TOMBSTONE_SECONDS + 60
    monkeypatch.setattr(time, "time", lambda: later)
    store.forget_owner("unknown-owner")
    assert ids(store) == ()
    assert reopen().get_epoch() == epoch


# -- forgetting


def test_an_owner_is_forgotten(store: OutcomeStore) -> None:
    store.add_answers([answer("hers", "ann", "s"), answer("his", "bob")])
    store.add_outcomes(
        [outcome("k1", "hers", "ann"), outcome("k2", "hers", "root"), outcome("k3", "his", "ann"),
         outcome("k4", "his", "bob")]
    )  # fmt: skip
    vectors = {"hers": StoredVector(np.ones(4, dtype=np.int8), 0.5)}
    store.add_answers([], TaskVectors("m", vectors))
    epoch = store.get_changes(0).epoch
    versions = store.list_changed_days()
    assert store.forget_owner("ann") == 3
    assert store.get_answers(["hers", "his"]) == {"his": answer("his", "bob")}
    assert list(store.get_outcomes(["hers", "his"])) == ["his"]
    assert [one.key for one in store.list_outcomes()] == ["k4"]
    assert dict(store.count_outcomes()) == {"bob": 1}
    assert set(ids(store, epoch)) == {"hers", "his"}
    assert store.list_session("ann", "s", 9) == []
    assert store.get_vectors("m", ["hers"]) == {}
    assert [one.query_id for one in store.list_answers_of(DAY)] == ["his"]
    assert [one.key for one in store.list_outcomes_of(DAY)] == ["k4"]
    assert store.list_changed_days()[DAY] > versions[DAY]
    assert store.forget_owner("ann") == 0


def test_old_queries_are_forgotten_with_their_outcomes(store: OutcomeStore) -> None:
    store.add_answers([answer("old", at=NOON - 1), answer("new", at=NOON)])
    store.add_outcomes([outcome("k1", "old", at=NOON + SECONDS_PER_DAY), outcome("k2", "new")])
    epoch = store.get_changes(0).epoch
    assert store.forget_before(NOON) == 1
    assert list(store.get_answers(["old", "new"])) == ["new"]
    assert list(store.get_outcomes(["old", "new"])) == ["new"]
    assert ids(store, epoch) == ("old",)
    assert list(store.list_outcomes_of(DAY + 1)) == []


def test_what_was_forgotten_does_not_come_back(store: OutcomeStore) -> None:
    store.add_answers([answer("q1"), answer("q2")])
    store.add_outcomes([outcome("k1", "q1")])
    store.forget_owner("ann")
    store.add_answers([answer("q1"), answer("q2"), answer("q3")])
    assert list(store.get_answers(["q1", "q2", "q3"])) == ["q3"]
    with pytest.raises(NotFoundError, match="q1"):
        store.add_outcomes([outcome("k1", "q1")])


def test_the_feed_forgets_deleted_queries_in_time(
    store: OutcomeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add_answers([answer("q1"), answer("q2", "bob")])
    store.add_outcomes([outcome("k1", "q1"), outcome("k2", "q2", "bob")])
    store.forget_owner("ann")
    assert set(ids(store)) == {"q1", "q2"}
    later = time.time() + protocol.KEPT_TOMBSTONE_SECONDS + 60
    monkeypatch.setattr(time, "time", lambda: later)
    store.forget_owner("unknown-owner")
    assert ids(store) == ("q2",)


def report_after_each_read(
    store: OutcomeStore, other: OutcomeStore, query_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Have another process report an outcome of a query after each read of the store."""
    keys = (f"late-{number}" for number in itertools.count())

    def after(read: Callable[[Sequence[str]], object]) -> Callable[[Sequence[str]], object]:
        def read_then_report(query_ids: Sequence[str]) -> object:
            found = read(query_ids)
            with suppress(NotFoundError):
                other.add_outcomes([outcome(next(keys), query_id, at=NOON + SECONDS_PER_DAY)])
            return found

        return read_then_report

    for name in ("get_answers", "get_outcomes"):
        monkeypatch.setattr(store, name, after(getattr(store, name)))


FORGETTING: dict[str, Callable[[OutcomeStore], object]] = {
    "owner": lambda store: store.forget_owner("ann"),
    "age": lambda store: store.forget_before(NOON + 1),
    "pruned": lambda store: store.prune_days(DAY + 1),
    "dropped": lambda store: store.drop_answers(["q1"]),
}


@pytest.mark.parametrize("way", FORGETTING)
def test_no_outcome_stays_without_its_answer(
    reopen: Reopen, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = reopen(), reopen()
    store.add_answers([answer("q1")])
    if way != "dropped":
        store.add_outcomes([outcome("k1", "q1")])
    store.save_day(DAY, store.list_changed_days()[DAY], b"")
    report_after_each_read(store, other, "q1", monkeypatch)
    FORGETTING[way](store)
    stored = other.get_outcomes(["q1"])
    assert stored.keys() == other.get_answers(["q1"]).keys()
    if way != "dropped":
        assert not stored
    count = len(stored.get("q1", ()))
    assert dict(other.count_outcomes()) == ({"ann": count} if count else {})
    assert len(list(other.list_outcomes())) == count


def test_outcomes_of_several_days_are_forgotten_one_owner_at_a_time(store: OutcomeStore) -> None:
    store.add_answers([answer("q1", "bob")])
    days = [NOON + number * SECONDS_PER_DAY for number in range(3)]
    midnight = (DAY + 1) * SECONDS_PER_DAY
    moments = [*days, math.nextafter(midnight, 0), midnight]
    store.add_outcomes([outcome(f"a{at!r}", "q1", "ann", at) for at in moments])
    store.add_outcomes([outcome("b", "q1", "bob", days[1])])
    assert store.forget_owner("ann") == 5
    assert [one.key for one in store.list_outcomes()] == ["b"]
    assert [len(list(store.list_outcomes_of(DAY + number))) for number in range(3)] == [0, 1, 0]
    assert dict(store.count_outcomes()) == {"bob": 1}


def test_the_outcomes_of_one_query_are_forgotten_and_it_stays(store: OutcomeStore) -> None:
    store.add_answers([answer("q1"), answer("q2")])
    store.add_outcomes([outcome("a", "q1"), outcome("b", "q1", "bob"), outcome("c", "q2")])
    before = store.get_changes(0).epoch
    assert store.forget_outcomes("q1") == 2
    assert [one.key for one in store.list_outcomes()] == ["c"]
    assert store.get_changes(before).query_ids == ("q1",)
    assert "q1" in store.get_answers(["q1"])
    assert store.forget_outcomes("q1") == 0
    with pytest.raises(NotFoundError):
        store.forget_outcomes("q9")


def test_a_withdrawal_is_also_of_outcomes_that_are_accepted_and_not_stored(
    store: OutcomeStore,
) -> None:
    store.add_answers([answer("q1"), answer("q2")])
    late, others = outcome("a", "q1"), outcome("b", "q2")
    accepted = time.time()
    assert store.forget_outcomes("q1") == 0
    assert store.add_outcomes([late, others], accepted) == 1
    assert [one.key for one in store.list_outcomes()] == ["b"]
    assert dict(store.count_outcomes()) == {others.owner: 1}
    assert store.add_outcomes([late], time.time() + 60) == 1
    assert store.forget_outcomes("q1") == 1


# -- vectors, contributors


def test_vectors_are_kept_by_model(reopen: Reopen) -> None:
    store = reopen()
    first = StoredVector(np.array([1, -128, 127], dtype=np.int8), 0.125)
    other = StoredVector(np.array([3, 2, 1], dtype=np.int8), 1.5)
    both = [answer("q1"), answer("q2")]
    store.add_answers(both, TaskVectors("a", {"q1": first, "unknown": first}))
    store.add_answers(both, TaskVectors("b", {"q1": other}))
    store.add_answers(both, TaskVectors("a", {"q1": other}))
    found = reopen().get_vectors("a", ["q1", "q2", "unknown"])
    assert list(found) == ["q1"]
    assert found["q1"].scale == 0.125
    assert found["q1"].values.tolist() == [1, -128, 127]
    assert store.get_answers(["unknown"]) == {}


def test_contributors_of_sources(store: OutcomeStore) -> None:
    assert store.list_contributors() == {}
    assert store.count_contributors() == 0
    for _ in range(2):
        store.add_contributor("lib", "ann")
    store.add_contributor("lib", "bob")
    store.add_contributor("other", "ann")
    assert store.list_contributors() == {
        "lib": frozenset({"ann", "bob"}),
        "other": frozenset({"ann"}),
    }
    assert store.count_contributors() == 3


# -- days


def test_a_day_is_changed_until_its_usage_is_stored(store: OutcomeStore) -> None:
    store.add_answers([answer("q1"), answer("q2", at=NOON + SECONDS_PER_DAY)])
    days = store.list_changed_days()
    assert list(days) == [DAY, DAY + 1]
    store.save_day(DAY, days[DAY], b"{}")
    assert list(store.list_changed_days()) == [DAY + 1]
    store.add_answers([answer("q1")])
    assert list(store.list_changed_days()) == [DAY + 1]
    store.save_day(DAY + 1, days[DAY + 1], b"{}")
    # Reported on the first day, of a query of the second: that one is counted anew.
    store.add_outcomes([outcome("k1", "q2")])
    assert list(store.list_changed_days()) == [DAY + 1]


def test_usage_of_an_earlier_version_does_not_replace_a_later_one(store: OutcomeStore) -> None:
    store.add_answers([answer("q1")])
    earlier = store.list_changed_days()[DAY]
    store.add_answers([answer("q2")])
    later = store.list_changed_days()[DAY]
    store.save_day(DAY, later, b"2")
    store.save_day(DAY, earlier, b"1")
    assert store.get_days(DAY - 1, DAY) == {DAY: b"2"}
    assert store.get_days(DAY + 1, DAY + 9) == {}
    assert store.list_changed_days() == {}


def test_rows_of_a_day(store: OutcomeStore) -> None:
    store.add_answers([answer("q2"), answer("q1"), answer("q3", at=NOON + SECONDS_PER_DAY)])
    late = outcome("k2", "q1", at=NOON + SECONDS_PER_DAY)
    store.add_outcomes([outcome("k1", "q2"), late])
    assert [one.query_id for one in store.list_answers_of(DAY)] == ["q1", "q2"]
    assert [one.key for one in store.list_outcomes_of(DAY)] == ["k1"]
    assert list(store.list_outcomes_of(DAY + 1)) == [late]
    assert list(store.list_answers_of(DAY - 1)) == []


# -- recorded answers, threads


def test_the_time_of_recorded_answers_only_moves_forward(reopen: Reopen) -> None:
    store = reopen()
    assert store.get_recorded_until() == 0.0
    store.set_recorded_until(NOON + 0.125)
    store.set_recorded_until(NOON)
    assert reopen().get_recorded_until() == NOON + 0.125


def test_writers_at_the_same_time_lose_nothing(reopen: Reopen) -> None:
    first = reopen()
    first.add_answers([answer(f"q{number}") for number in range(20)])

    def report(owner: str) -> None:
        mine = reopen()
        for number in range(20):
            mine.add_outcomes([outcome(f"{owner}-{number}", f"q{number}", owner)])
            mine.add_outcomes([outcome(f"shared-{number}", f"q{number}", "both")])

    threads = [threading.Thread(target=report, args=(owner,)) for owner in ("ann", "bob")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert dict(first.count_outcomes()) == {"ann": 20, "bob": 20, "both": 20}
    assert len(list(first.list_outcomes())) == 60
    assert len(ids(first)) == 20


# -- Redis only


def test_redis_names_no_days_and_queries_that_are_gone(redis_settings: ServerSettings) -> None:
    with (
        connect(redis_settings, binary=True) as client,
        closing(RedisOutcomeStore(client, redis_settings)) as store,
    ):
        store.add_answers([answer("q1", session="s"), answer("q2", "bob")])
        days = [NOON + number * SECONDS_PER_DAY for number in range(3)]
        for query_id in ("q1", "q2"):
            keys = [(f"{owner}-{at}", owner, at) for owner in ("ann", "bob") for at in days]
            store.add_outcomes(
                [outcome(f"{query_id}-{key}", query_id, owner, at) for key, owner, at in keys]
            )
        store.forget_owner("ann")
        store.forget_owner("bob")
        assert {name.decode() for name in client.keys("*")} == {
            redis_scripts.VERSIONS,
            redis_scripts.EPOCH,
            redis_scripts.CHANGES,
            redis_scripts.TOMBSTONES,
        }


def test_redis_reads_days_and_answers_in_parts(
    redis_settings: ServerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        connect(redis_settings, binary=True) as client,
        closing(RedisOutcomeStore(client, redis_settings)) as store,
    ):
        names = sorted(f"q{number}" for number in range(2_000))
        store.add_answers([answer(name) for name in names[:1_000]])
        store.add_answers([answer(name, at=NOON + SECONDS_PER_DAY) for name in names[1_000:]])
        commands: list[tuple[str, str]] = []
        execute = client.execute_command

        def execute_command(*args: Any, **options: Any) -> Any:
            commands.append((args[0], str(args[1])))
            return execute(*args, **options)

        monkeypatch.setattr(client, "execute_command", execute_command)
        assert [one.query_id for one in store.list_answers_of(DAY)] == names[:1_000]
        assert store.forget_before(NOON + 1) == 0
        assert [one.query_id for one in store.list_answers_of(DAY + 1)] == names[1_000:]
        store.save_day(DAY + 1, store.list_changed_days()[DAY + 1], b"")
        assert store.prune_days(DAY + 2) == 1_000
        whole = {("SMEMBERS", f"{redis_scripts.ANSWERED_ON}{DAY + day}") for day in range(2)}
        assert not {("ZRANGE", redis_scripts.ANSWERS), *whole} & set(commands)
        commands.clear()
        assert store.prune_days(DAY + 2) == 0
        assert "SSCAN" not in {command for command, _ in commands}
        assert client.exists(redis_scripts.ANSWERS) == 0
