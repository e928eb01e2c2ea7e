"""Spending a budget: never above it, best first, and more when there is more."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from skills.bundle.token_budget import BudgetItem, allocate_tokens

PASSAGES = st.lists(st.integers(1, 400), max_size=8).map(lambda costs: list(enumerate(costs)))
OFFER = st.builds(
    BudgetItem,
    header_tokens=st.integers(0, 200),
    worth=st.floats(0.01, 1),
    passages=PASSAGES,
    enough=st.integers(1, 8),
    sufficiency=st.floats(0.1, 1),
    first=st.booleans(),
)
OFFERS = st.lists(OFFER, max_size=6)


def cost_of(items: list[BudgetItem], bought: list[list[int] | None]) -> int:
    total = 0
    for offer, indexes in zip(items, bought, strict=True):
        if indexes is not None:
            total += offer.header_tokens + sum(dict(offer.passages)[index] for index in indexes)
    return total


@given(OFFERS, st.integers(0, 3000))
@settings(max_examples=100, deadline=None)
def test_never_above_the_budget(items: list[BudgetItem], budget: int) -> None:
    bought = allocate_tokens(items, budget)
    assert len(bought) == len(items)
    assert cost_of(items, bought) <= budget
    for offer, indexes in zip(items, bought, strict=True):
        if indexes is not None:
            assert indexes == sorted(set(indexes))
            assert bool(indexes) == bool(offer.passages)


@given(OFFERS)
@settings(max_examples=100, deadline=None)
def test_with_enough_everything_is_bought(items: list[BudgetItem]) -> None:
    everything = [[index for index, _ in offer.passages] for offer in items]
    budget = cost_of(items, [list(indexes) for indexes in everything])
    assert allocate_tokens(items, budget) == everything


@given(OFFER, st.integers(0, 2000), st.integers(0, 1000))
@settings(max_examples=100, deadline=None)
def test_more_budget_never_loses_the_best_skill(item: BudgetItem, budget: int, more: int) -> None:
    if allocate_tokens([item], budget) != [None]:
        assert allocate_tokens([item], budget + more) != [None]


def test_enough_of_the_best_comes_before_the_next_and_both_before_the_rest() -> None:
    best = BudgetItem(10, 0.6, [(1, 40), (0, 40), (2, 200)], 2, 0.8)
    other = BudgetItem(10, 0.3, [(0, 40), (1, 400)], 1, 0.8)
    assert allocate_tokens([best, other], 90) == [[0, 1], None]
    assert allocate_tokens([best, other], 140) == [[0, 1], [0]]
    assert allocate_tokens([best, other], 340) == [[0, 1, 2], [0]]
    assert allocate_tokens([best, other], 740) == [[0, 1, 2], [0, 1]]


def test_the_rest_of_a_sure_skill_comes_before_an_unlikely_one() -> None:
    sure = BudgetItem(10, 0.9, [(0, 90), (1, 100)], 1, 0.7)
    unlikely = BudgetItem(10, 0.01, [(0, 40)], 1, 0.7)
    assert allocate_tokens([sure, unlikely], 200) == [[0, 1], None]


def test_a_rest_worth_more_than_what_is_enough_comes_with_it() -> None:
    whole = BudgetItem(10, 0.5, [(0, 90), (1, 10)], 1, 0.5)
    assert allocate_tokens([whole, BudgetItem(10, 0.4, [(0, 90)], 1)], 110) == [[0, 1], None]


def test_what_is_wanted_first_is_bought_first() -> None:
    long = BudgetItem(10, 0.1, [(0, 90)], 1, first=True)
    short = BudgetItem(10, 0.9, [(0, 20)], 1)
    assert allocate_tokens([short, long], 100) == [None, [0]]


def test_of_what_does_not_fit_the_most_needed_that_does_is_bought() -> None:
    assert allocate_tokens([BudgetItem(10, 1.0, [(4, 500), (2, 60), (1, 50)], 3)], 100) == [[2]]
    assert allocate_tokens([BudgetItem(10, 1.0, [(0, 500)], 1)], 100) == [None]


def test_a_skill_without_passages_is_its_header() -> None:
    assert allocate_tokens([BudgetItem(10, 1.0, [], 0)], 10) == [[]]
    assert allocate_tokens([BudgetItem(10, 1.0, [], 0)], 9) == [None]


def test_nothing_offered_nothing_bought() -> None:
    assert allocate_tokens([], 100) == []


def test_a_prerequisite_is_not_bought_without_or_before_what_needs_it() -> None:
    needs = BudgetItem(10, 0.6, [(0, 200)], 1)
    short = BudgetItem(10, 0.59, [(0, 40)], 1, needed_by=0)
    shorter = BudgetItem(10, 0.58, [(0, 20)], 1, needed_by=1)
    other = BudgetItem(10, 0.1, [(0, 40)], 1)
    assert allocate_tokens([needs, short, shorter, other], 210) == [[0], None, None, None]
    assert allocate_tokens([needs, short, shorter, other], 260) == [[0], [0], None, None]
    assert allocate_tokens([needs, short, shorter, other], 290) == [[0], [0], [0], None]
    assert allocate_tokens([needs, short, shorter, other], 200) == [None, None, None, [0]]


def test_a_prerequisite_comes_right_behind_what_needs_it_before_extras() -> None:
    needs = BudgetItem(10, 0.6, [(0, 40)], 1)
    prerequisite = BudgetItem(10, 0.6, [(0, 300)], 1, needed_by=0)
    extra = BudgetItem(10, 0.5, [(0, 40)], 1)
    assert allocate_tokens([needs, prerequisite, extra], 370) == [[0], [0], None]
    assert allocate_tokens([needs, prerequisite, extra], 420) == [[0], [0], [0]]
    alone = BudgetItem(10, 0.6, [(0, 300)], 1)
    assert allocate_tokens([needs, alone, extra], 370) == [[0], None, [0]]


def test_passages_that_belong_together_are_bought_together() -> None:
    item = BudgetItem(10, 0.5, [(3, 20), (4, 20), (1, 30)], 3, together={3: 3, 4: 3, 1: 1})
    assert allocate_tokens([item], 49) == [[1]]
    assert allocate_tokens([item], 50) == [[3, 4]]
    assert allocate_tokens([item], 80) == [[1, 3, 4]]
