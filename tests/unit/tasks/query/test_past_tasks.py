"""Past tasks of a process: a function of what the store holds, whenever it was read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings

from config.errors import TransientError
from config.learning_settings import LearningSettings
from search.protocol import Vector
from search.text.query_understanding import understand
from skills.outcomes.model import SECONDS_PER_DAY, AnsweredQuery, Outcome, OutcomeKind, Reporter
from tasks.outcomes.protocol import (
    KEPT_TOMBSTONE_SECONDS,
    OutcomeChanges,
    OutcomeStore,
    TaskVectors,
    quantise_vector,
)
from tasks.outcomes.sqlite import SqliteOutcomeStore
from tasks.outcomes.sqlite_days import mark_changed_queries
from tasks.query.process_state import past_tasks as past_tasks_module
from tasks.query.process_state.past_tasks import PastTasks
from tests.support.samples.changing_outcomes import STEPS, ExchangedStore, FailingStore, apply

DIMENSION = 64
TASK = understand("clean the trips")


class SmallEncoder:
    """Vectors by a hash of the words; enough to tell texts apart."""

    model, dimension, languages = "small:1", DIMENSION, frozenset({"en"})

    def encode_queries(self, texts: Sequence[str]) -> Vector:
        """A unit vector for each text."""
        return np.stack([vector_of(text) for text in texts])

    def encode_texts(
        self, texts: Sequence[str], before_batch: Callable[[], None] | None = None
    ) -> Vector:
        """The same."""
        return self.encode_queries(texts)


def vector_of(text: str) -> Vector:
    total = np.zeros(DIMENSION, dtype=np.float32)
    for term in understand(text).ids.tolist():
        total += np.random.default_rng(term).normal(size=DIMENSION).astype(np.float32)
    return np.asarray(total / np.linalg.norm(total), dtype=np.float32)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteOutcomeStore]:
    opened = SqliteOutcomeStore(tmp_path / "outcomes.db")
    yield opened
    opened.close()


def report(
    store: OutcomeStore,
    query_id: str,
    task: str,
    skill_id: str = "lib:a",
    *,
    day: int = 20_000,
    owner: str = "",
    model: str = "small:1",
) -> None:
    at = float(day * SECONDS_PER_DAY)
    vectors = TaskVectors(model, {query_id: quantise_vector(vector_of(task))}) if model else None
    store.add_answers([AnsweredQuery(query_id, owner, "", task, at, hit=True)], vectors)
    store.add_outcomes(
        [
            Outcome(
                f"{query_id}-1", query_id, skill_id, OutcomeKind.HELPED, Reporter.PERSON, owner, at
            )
        ]
    )


def past_tasks(store: OutcomeStore, **settings: object) -> PastTasks:
    return PastTasks(store, SmallEncoder, LearningSettings(**settings))


def recall(tasks: PastTasks, task: str = "clean the trips") -> object:
    return tasks.recall(understand(task), vector_of(task))


def test_an_empty_store_needs_no_encoder(store: SqliteOutcomeStore) -> None:
    def fail() -> SmallEncoder:
        raise AssertionError("no model is needed")

    assert PastTasks(store, fail, LearningSettings()).recall(TASK, None) == {}


def test_what_is_reported_is_remembered_and_what_is_taken_back_is_forgotten(
    store: SqliteOutcomeStore,
) -> None:
    tasks = past_tasks(store)
    assert recall(tasks) == {}
    report(store, "q1", "clean all the trips")
    first = recall(tasks)
    assert list(first) == ["lib:a"]  # type: ignore[call-overload]
    report(store, "q2", "clean trips", "lib:b", owner="ann")
    assert recall(tasks) != first
    store.forget_owner("ann")
    assert recall(tasks) == first
    assert recall(past_tasks(store)) == first


def test_what_is_left_out_is_not_remembered_until_others_are(store: SqliteOutcomeStore) -> None:
    tasks = past_tasks(store)
    report(store, "q1", "clean all the trips")
    report(store, "q2", "clean trips", "lib:b")
    whole = recall(tasks)
    tasks.leave_out(["q1"])
    assert list(recall(tasks)) == ["lib:b"]  # type: ignore[call-overload]
    report(store, "q3", "clean the trips", "lib:c")
    tasks.leave_out(["q2", "q3"])
    assert list(recall(tasks)) == ["lib:a"]  # type: ignore[call-overload]
    tasks.leave_out(["q3"])
    assert recall(tasks) == whole
    tasks.leave_out(())
    assert recall(tasks) == recall(past_tasks(store))


def test_the_newest_tasks_are_kept_and_older_ones_come_back(store: SqliteOutcomeStore) -> None:
    for number in range(6):
        report(
            store, f"q{number}", f"clean the trips {number}", f"lib:{number}", day=20_000 + number
        )
    report(store, "new", "clean the trips", "lib:new", day=20_010, owner="ann")
    tasks = past_tasks(store, past_tasks=3, least_owners=1)
    assert list(recall(tasks)) == ["lib:4", "lib:5", "lib:new"]  # type: ignore[call-overload]
    store.forget_owner("ann")
    assert list(recall(tasks)) == ["lib:3", "lib:4", "lib:5"]  # type: ignore[call-overload]
    assert recall(tasks) == recall(past_tasks(store, past_tasks=3, least_owners=1))


def test_tasks_without_a_vector_of_the_encoder_are_found_by_words(
    store: SqliteOutcomeStore,
) -> None:
    report(store, "q1", "clean the trips", model="other:1")
    report(store, "q2", "clean the trips", "lib:b", model="")
    assert list(recall(past_tasks(store))) == ["lib:a", "lib:b"]  # type: ignore[call-overload]


def test_they_are_read_before_the_first_query(
    store: SqliteOutcomeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    report(store, "q1", "clean the trips")
    tasks = past_tasks(store)
    tasks.load()

    def fail(_: Sequence[str]) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(store, "get_outcomes", fail)
    assert list(recall(tasks)) == ["lib:a"]  # type: ignore[call-overload]
    past_tasks(store, memory=False).load()


def test_settings_switch_it_off(store: SqliteOutcomeStore) -> None:
    report(store, "q1", "clean the trips")
    assert recall(past_tasks(store, memory=False)) == {}
    assert recall(past_tasks(store, past_tasks=0)) == {}


def test_contributors_do_not_count(store: SqliteOutcomeStore) -> None:
    report(store, "q1", "clean the trips", owner="ann")
    tasks = past_tasks(store, least_owners=1)
    assert list(recall(tasks)) == ["lib:a"]  # type: ignore[call-overload]
    store.add_contributor("lib", "ann")
    assert recall(tasks) == {}
    assert recall(past_tasks(store, trusted_owners=("ann",))) != {}


def test_contributors_are_read_when_their_number_changes(store: SqliteOutcomeStore) -> None:
    report(store, "q1", "clean the trips", owner="ann")
    counted = ExchangedStore(store)
    tasks = PastTasks(counted.as_store, SmallEncoder, LearningSettings(least_owners=1))
    store.add_contributor("other", "ann")
    for _ in range(3):
        assert recall(tasks)
    store.add_contributor("lib", "ann")
    assert recall(tasks) == {}
    assert counted.calls.count("list_contributors") == 2


# -- when to start anew
def test_a_process_that_rested_longer_than_the_feed_remembers_starts_anew(
    store: SqliteOutcomeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 2e9
    monkeypatch.setattr("time.time", lambda: now)
    report(store, "q1", "clean the trips")
    tasks = past_tasks(store)
    assert recall(tasks)
    store.forget_before(2e9)
    now += KEPT_TOMBSTONE_SECONDS + 1
    store.forget_before(0.0)
    assert store.get_changes(0).query_ids == ()
    assert recall(tasks) == {}


def test_another_store_is_noticed_within_a_minute(store: SqliteOutcomeStore) -> None:
    now = 2e9
    for number in range(3):
        report(store, f"q{number}", "clean the trips")
    exchanged = ExchangedStore(store)
    tasks = PastTasks(exchanged.as_store, SmallEncoder, LearningSettings(), lambda: now)
    for _ in range(5):
        assert list(recall(tasks)) == ["lib:a"]  # type: ignore[call-overload]
        now += 10
    assert exchanged.calls.count("get_epoch") == 1
    exchanged.store = SqliteOutcomeStore(":memory:")
    report(exchanged.store, "q1", "clean the trips", "lib:b")
    now += 30
    assert list(recall(tasks)) == ["lib:b"]  # type: ignore[call-overload]


def test_a_recall_reads_all_at_most_once_more(
    store: SqliteOutcomeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_tasks_module, "_BATCH_QUERIES", 2)
    for number in range(12):
        owner = "ann" if number > 5 else ""
        report(store, f"q{number:02}", "clean the trips", f"lib:{number}", day=number, owner=owner)
    counted = ForgettingStore(store)
    tasks = PastTasks(counted.as_store, SmallEncoder, LearningSettings(past_tasks=3))
    assert list(recall(tasks)) == ["lib:10", "lib:11", "lib:9"]  # type: ignore[call-overload]
    counted.forgets = True
    counted.starts = 0
    recall(tasks)
    assert counted.starts == 1
    counted.forgets = False
    assert recall(tasks) == recall(past_tasks(store, past_tasks=3))


class ForgettingStore(ExchangedStore):
    """Forgets the outcomes of another query before each read. starts: reads of all changes."""

    forgets = False
    starts = 0

    def get_changes(self, after: int) -> OutcomeChanges:
        """Those of the store, without the newest."""
        self.starts += after == 0
        if self.forgets:
            self._forget_newest()
        return self.store.get_changes(after)

    def get_outcomes(self, query_ids: Sequence[str]) -> dict[str, tuple[Outcome, ...]]:
        """Those of the store, without the newest."""
        if self.forgets:
            self._forget_newest()
        return self.store.get_outcomes(query_ids)

    def _forget_newest(self) -> None:
        newest = max((one.reported for one in self.store.list_outcomes()), default=0.0)
        for one in list(self.store.list_outcomes()):
            if one.reported == newest:
                file = cast(SqliteOutcomeStore, self.store)._file
                with file.transaction() as connection:
                    connection.execute("DELETE FROM outcomes WHERE key = ?", (one.key,))
                    mark_changed_queries(connection, [one.query_id])


# -- errors
def test_a_failed_read_takes_nothing_away_for_good() -> None:
    store = FailingStore(":memory:")
    tasks = past_tasks(store)
    report(store, "q1", "clean the trips", day=1)
    report(store, "q2", "clean the trips", "lib:b", day=2, owner="ann")
    first = past_tasks(store, past_tasks=1)
    assert list(recall(first)) == ["lib:b"]  # type: ignore[call-overload]
    store.forget_owner("ann")
    for fails_at in (2, 1):
        store.fails_at = fails_at
        with pytest.raises(TransientError):
            recall(first)
        store.fails_at = fails_at
        with pytest.raises(TransientError):
            recall(tasks)
    assert recall(first) == recall(tasks) == recall(past_tasks(store))
    store.close()


@given(STEPS)
@hypothesis_settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_is_held_is_that_of_a_fresh_reader(
    monkeypatch: pytest.MonkeyPatch, steps: list[tuple[Any, ...]]
) -> None:
    monkeypatch.setattr(past_tasks_module, "_BATCH_QUERIES", 2)
    store = FailingStore(":memory:")
    tasks = past_tasks(store, past_tasks=2)
    for changes, fails_at in [*steps, ([], 0)]:
        apply(store, changes)
        store.fails_at = fails_at
        with suppress(TransientError):
            recall(tasks)
        store.fails_at = 0
    fresh = past_tasks(store, past_tasks=2)
    assert recall(tasks) == recall(fresh)
    held, wanted = ([] if one._memory is None else one._memory._order for one in (tasks, fresh))
    assert held == wanted
    store.close()
