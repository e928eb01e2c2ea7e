"""Labels for training from outcomes: weighed by place, limited by owner, the same in any order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skills.outcomes.model import AnsweredQuery, AnsweredSkill, Outcome, OutcomeKind, Reporter
from tasks.outcomes.protocol import OutcomeStore
from tasks.outcomes.sqlite import SqliteOutcomeStore
from workers.training.outcome_labels import (
    MAX_WEIGHT,
    estimate_propensities,
    read_outcome_labels,
)
from workers.training.training_data import count_copies

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


def test_the_report_of_an_agent_at_a_late_place_weighs_more_too(store: OutcomeStore) -> None:
    names = [f"a:{number}" for number in range(4)]
    store.add_answers([answer(f"q{number}", *names) for number in range(40)])
    outcomes = [outcome(f"q{number}", names[0], by=Reporter.AGENT) for number in range(30)]
    outcomes += [outcome(f"q{number}", names[3], by=Reporter.AGENT) for number in range(30, 39)]
    store.add_outcomes([*outcomes, outcome("q39", names[0])])
    found = read_outcome_labels(store, TRUSTED)
    late = [row["weight"] for row in found.rows if row["gt_skill_ids"] == [names[3]]]
    first = {row["weight"] for row in found.rows if row["gt_skill_ids"] == [names[0]]}
    assert first == {1.0, 2.0}
    assert late == pytest.approx([1 / found.propensities[3]] * 9)


def test_no_label_weighs_more_than_the_largest_weight(store: OutcomeStore) -> None:
    names = [f"a:{number}" for number in range(4)]
    store.add_answers([answer(f"q{number}", *names) for number in range(40)])
    outcomes = [outcome(f"q{number}", names[0], USED, by=Reporter.AGENT) for number in range(39)]
    store.add_outcomes([*outcomes, outcome("q39", names[3])])
    weights = [row["weight"] for row in read_outcome_labels(store, TRUSTED).rows]
    assert (min(weights), max(weights)) == (1.0, MAX_WEIGHT)


def test_a_skill_that_was_left_out_for_the_budget_is_not_weighed(store: OutcomeStore) -> None:
    unsent = AnsweredSkill("a:1", 1, 2, sent=False)
    first = answer("q0", "a:0")
    store.add_answers([replace(first, skills=(*first.skills, unsent))])
    store.add_answers([answer(f"q{number}", "a:0", "a:1") for number in range(1, 40)])
    store.add_outcomes([outcome(f"q{number}", "a:0") for number in range(1, 40)])
    store.add_outcomes([outcome("q0", "a:1")])
    found = read_outcome_labels(store, TRUSTED)
    assert found.propensities[1] < 0.1 + 1e-9
    assert {row["weight"] for row in found.rows} == {1.0}


def weights_by_owner(
    store: OutcomeStore, counts: dict[str, int], trusted: set[str]
) -> dict[str, float]:
    """The weight of each owner, who says that many times that its own skill helped."""
    owners = [owner for owner, count in counts.items() for _ in range(count)]
    store.add_answers([answer(f"q{number}") for number in range(len(owners))])
    store.add_outcomes(
        [outcome(f"q{number}", f"of:{owner}", owner=owner) for number, owner in enumerate(owners)]
    )
    found = dict.fromkeys(counts, 0.0)
    for row in read_outcome_labels(store, trusted).rows:
        found[row["gt_skill_ids"][0].removeprefix("of:")] += row["weight"]
    return found


@pytest.mark.parametrize(
    ("counts", "weights"),
    [
        ({"": 10, "eve": 100}, {"": 10, "eve": 5}),
        ({"": 10, "eve": 100, "ann": 3}, {"": 10, "eve": 6.5, "ann": 3}),
        ({"": 10, "eve": 100, "ann": 90}, {"": 10, "eve": 10, "ann": 10}),
        ({"": 10, "eve": 4}, {"": 10, "eve": 4}),
        ({"bob": 5, "eve": 100, "ann": 7, "cy": 9}, {"bob": 5, "eve": 10.5, "ann": 7, "cy": 9}),
        ({"eve": 90, "ann": 10}, {"eve": 10, "ann": 10}),
        ({"eve": 9}, {"eve": 9}),
    ],
)
def test_one_owner_does_not_outweigh_the_others(
    store: OutcomeStore, counts: dict[str, int], weights: dict[str, float]
) -> None:
    assert weights_by_owner(store, counts, TRUSTED) == pytest.approx(weights)


def test_a_trusted_owner_may_outweigh_the_others(store: OutcomeStore) -> None:
    counts = {"": 2, "ann": 5, "eve": 90}
    assert weights_by_owner(store, counts, {"", "eve"}) == pytest.approx(counts)


@settings(max_examples=30)
@given(
    st.dictionaries(st.sampled_from(["", "ann", "bob", "cy", "eve"]), st.integers(1, 12)).filter(
        lambda counts: len(counts) > 2 or "" in counts
    )
)
def test_no_owner_has_more_than_a_third(counts: dict[str, int]) -> None:
    store = SqliteOutcomeStore(":memory:")
    found = weights_by_owner(store, counts, TRUSTED)
    store.close()
    total = sum(found.values())
    for owner, weight in found.items():
        limit = total / 3 if owner else counts[owner]
        assert weight == pytest.approx(min(counts[owner], limit))


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


@settings(max_examples=30)
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
    assert set(copies) == {2, 3}
    assert sum(copies) == pytest.approx(900, rel=0.05)
    assert copies == count_copies(tasks[::-1], seed=1)[::-1]
    assert count_copies([{"instruction": " x "}], seed=0) == [1]


@pytest.mark.parametrize("text", ["task {}", "the same task"])
def test_a_limited_owner_has_few_copies(text: str) -> None:
    tasks = [{"instruction": text.format(number), "weight": 0.05} for number in range(1000)]
    copies = count_copies(tasks, seed=1)
    assert set(copies) == {0, 1}
    assert sum(copies) == pytest.approx(50, rel=0.4)


def test_each_of_several_tasks_with_one_text_has_its_own_copies() -> None:
    tasks = [{"instruction": "x", "weight": weight} for weight in (3.0, 1.0, 0.0)]
    assert count_copies([*tasks, {"instruction": "x"}], seed=0) == [3, 1, 0, 1]
