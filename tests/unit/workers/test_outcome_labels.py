"""Labels for training from outcomes: weighed by place, limited by owner, the same in any order."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skills.outcomes.model import AnsweredQuery, AnsweredSkill, Outcome, OutcomeKind, Reporter
from tasks.outcomes.protocol import OutcomeStore
from tasks.outcomes.sqlite import SqliteOutcomeStore
from workers.training.outcome_labels import (
    MAX_WEIGHT,
    count_copies,
    estimate_propensities,
    read_outcome_labels,
)

HELPED, REJECTED, USED = OutcomeKind.HELPED, OutcomeKind.REJECTED, OutcomeKind.USED
TRUSTED = {""}


@pytest.fixture
def store() -> Iterator[OutcomeStore]:
    opened = SqliteOutcomeStore(":memory:")
    yield opened
    opened.close()


def answer(query_id: str, *skills: str, owner: str = "") -> AnsweredQuery:
    sent = tuple(AnsweredSkill(skill, 1, place) for place, skill in enumerate(skills, 1))
    return AnsweredQuery(query_id, owner, "", f"task {query_id}", 1e9, hit=True, skills=sent)


def outcome(
    query_id: str,
    skill: str,
    kind: OutcomeKind = HELPED,
    owner: str = "",
    by: Reporter = Reporter.PERSON,
) -> Outcome:
    reason = "wrong_step" if kind is REJECTED else ""
    key = f"{query_id}-{skill}-{owner}-{kind}"
    return Outcome(key, query_id, skill, kind, by, owner, 1e9, reason, place=1)


def test_what_helped_is_a_label_and_what_did_not_is_none(store: OutcomeStore) -> None:
    store.add_answers([answer("q1", "a:1", "a:2"), answer("q2", "a:1"), answer("q3", "a:1")])
    store.add_outcomes(
        [outcome("q1", "a:2"), outcome("q1", "a:1", REJECTED), outcome("q2", "a:1", REJECTED)]
    )
    rows = read_outcome_labels(store, TRUSTED).rows
    assert [(row["instruction"], row["gt_skill_ids"]) for row in rows] == [("task q1", ["a:2"])]


def test_a_late_place_weighs_more(store: OutcomeStore) -> None:
    names = [f"a:{number}" for number in range(4)]
    store.add_answers([answer(f"q{number}", *names) for number in range(40)])
    outcomes = [outcome(f"q{number}", names[0]) for number in range(30)]
    outcomes += [outcome(f"q{number}", names[3]) for number in range(30, 40)]
    store.add_outcomes(outcomes)
    found = read_outcome_labels(store, TRUSTED)
    assert found.propensities[0] == 1.0
    assert list(found.propensities) == sorted(found.propensities, reverse=True)
    weights = {row["gt_skill_ids"][0]: row["weight"] for row in found.rows}
    assert weights[names[0]] == 1.0
    assert weights[names[3]] == pytest.approx(1 / found.propensities[3])


def test_a_skill_that_was_not_sent_is_not_weighed(store: OutcomeStore) -> None:
    store.add_answers([answer("q1", "a:1", "a:2")])
    store.add_outcomes([outcome("q1", "a:9")])
    [row] = read_outcome_labels(store, TRUSTED).rows
    assert (row["gt_skill_ids"], row["weight"]) == (["a:9"], 1.0)


def test_one_owner_does_not_outweigh_the_others(store: OutcomeStore) -> None:
    store.add_answers([answer(f"q{number}", "a:1") for number in range(100)])
    store.add_outcomes([outcome(f"q{number}", "a:1", owner="eve") for number in range(90)])
    store.add_outcomes([outcome(f"q{number}", "a:2", owner="ann") for number in range(90, 100)])
    rows = read_outcome_labels(store, TRUSTED).rows
    total = sum(row["weight"] for row in rows if row["gt_skill_ids"] == ["a:1"])
    assert total == pytest.approx(100 / 3)
    trusting = read_outcome_labels(store, {"eve"}).rows
    assert sum(row["weight"] for row in trusting if row["gt_skill_ids"] == ["a:1"]) == 90


def test_contributors_do_not_label_their_own_source(store: OutcomeStore) -> None:
    store.add_answers([answer("q1", "a:1")])
    store.add_contributor("a", "ann")
    store.add_outcomes([outcome("q1", "a:1", owner="ann"), outcome("q1", "b:1", owner="ann")])
    [row] = read_outcome_labels(store, TRUSTED).rows
    assert row["gt_skill_ids"] == ["b:1"]
    [row] = read_outcome_labels(store, {"ann"}).rows
    assert row["gt_skill_ids"] == ["a:1", "b:1"]


def test_nothing_reported(store: OutcomeStore) -> None:
    assert read_outcome_labels(store, TRUSTED).rows == []


reports = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.integers(0, 3),
        st.sampled_from([HELPED, REJECTED, USED]),
        st.sampled_from(["", "ann", "bob"]),
    ),
    max_size=20,
)


@given(reports, st.randoms(use_true_random=False))
def test_the_order_of_reports_changes_nothing(
    found: list[tuple[int, int, OutcomeKind, str]], order: random.Random
) -> None:
    outcomes = [outcome(f"q{q}", f"a:{s}", kind, owner) for q, s, kind, owner in found]
    shuffled = list(outcomes)
    order.shuffle(shuffled)
    results = []
    for arrival in (outcomes, shuffled):
        store = SqliteOutcomeStore(":memory:")
        store.add_answers([answer(f"q{number}", "a:0", "a:1", "a:2") for number in range(6)])
        for one in arrival:
            store.add_outcomes([one])
        results.append(read_outcome_labels(store, TRUSTED))
        store.close()
    assert results[0] == results[1]


@given(st.dictionaries(st.integers(1, 12), st.tuples(st.integers(0, 99), st.integers(0, 99))))
def test_propensities_fall_from_one_and_are_bounded(
    counts: dict[int, tuple[int, int]],
) -> None:
    sent = {place: max(pair) for place, pair in counts.items()}
    reported = {place: min(pair) for place, pair in counts.items()}
    found = estimate_propensities(sent, reported)
    assert len(found) == max(sent, default=0)
    assert all(1 / MAX_WEIGHT <= value <= 1 for value in found)
    assert found == sorted(found, reverse=True)
    assert not found or found[0] == 1.0


def test_copies_are_right_on_average() -> None:
    tasks = [{"instruction": f"task {number}", "weight": 2.25} for number in range(400)]
    copies = count_copies(tasks, seed=1)
    assert set(copies.values()) == {2, 3}
    assert sum(copies.values()) == pytest.approx(900, rel=0.05)
    assert copies == count_copies(tasks[::-1], seed=1)
    assert count_copies([{"instruction": " x "}], seed=0) == {"x": 1}
