"""Past tasks of a process: a function of what the store holds, whenever it was read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from config.learning_settings import LearningSettings
from search.protocol import Vector
from search.text.query_understanding import understand
from skills.outcomes.model import SECONDS_PER_DAY, AnsweredQuery, Outcome, OutcomeKind, Reporter
from tasks.outcomes.protocol import TaskVectors, quantise_vector
from tasks.outcomes.sqlite import SqliteOutcomeStore
from tasks.query.process_state.past_tasks import PastTasks

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


def tell(
    store: SqliteOutcomeStore,
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


def past_tasks(store: SqliteOutcomeStore, **settings: object) -> PastTasks:
    return PastTasks(store, SmallEncoder, LearningSettings(**settings))  # type: ignore[arg-type]


def recall(tasks: PastTasks, task: str = "clean the trips") -> object:
    return tasks.recall(understand(task), vector_of(task))


def test_an_empty_store_needs_no_encoder(store: SqliteOutcomeStore) -> None:
    def fail() -> SmallEncoder:
        raise AssertionError("no model is needed")

    assert PastTasks(store, fail, LearningSettings()).recall(TASK, None) == {}


def test_what_is_told_is_remembered_and_what_is_taken_back_is_forgotten(
    store: SqliteOutcomeStore,
) -> None:
    tasks = past_tasks(store)
    assert recall(tasks) == {}
    tell(store, "q1", "clean all the trips")
    first = recall(tasks)
    assert list(first) == ["lib:a"]  # type: ignore[call-overload]
    tell(store, "q2", "clean trips", "lib:b", owner="ann")
    assert recall(tasks) != first
    store.forget_owner("ann")
    assert recall(tasks) == first
    assert recall(past_tasks(store)) == first


def test_the_newest_tasks_are_kept_and_older_ones_come_back(store: SqliteOutcomeStore) -> None:
    for number in range(6):
        tell(store, f"q{number}", f"clean the trips {number}", f"lib:{number}", day=20_000 + number)
    tell(store, "new", "clean the trips", "lib:new", day=20_010, owner="ann")
    tasks = past_tasks(store, past_tasks=3, least_owners=1)
    assert list(recall(tasks)) == ["lib:4", "lib:5", "lib:new"]  # type: ignore[call-overload]
    store.forget_owner("ann")
    assert list(recall(tasks)) == ["lib:3", "lib:4", "lib:5"]  # type: ignore[call-overload]
    assert recall(tasks) == recall(past_tasks(store, past_tasks=3, least_owners=1))


def test_tasks_without_a_vector_of_the_encoder_are_found_by_words(
    store: SqliteOutcomeStore,
) -> None:
    tell(store, "q1", "clean the trips", model="other:1")
    tell(store, "q2", "clean the trips", "lib:b", model="")
    assert list(recall(past_tasks(store))) == ["lib:a", "lib:b"]  # type: ignore[call-overload]


def test_settings_switch_it_off(store: SqliteOutcomeStore) -> None:
    tell(store, "q1", "clean the trips")
    assert recall(past_tasks(store, memory=False)) == {}
    assert recall(past_tasks(store, past_tasks=0)) == {}


def test_contributors_do_not_count(store: SqliteOutcomeStore) -> None:
    tell(store, "q1", "clean the trips", owner="ann")
    tasks = past_tasks(store, least_owners=1)
    assert list(recall(tasks)) == ["lib:a"]  # type: ignore[call-overload]
    store.add_contributor("lib", "ann")
    assert recall(tasks) == {}
    assert recall(past_tasks(store, trusted_owners=("ann",))) != {}
