"""Spending a budget: never above it, best first, and more when there is more."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from skills.bundle.token_budget import BudgetItem, allocate_tokens

PASSAGES = st.lists(
    st.tuples(st.floats(0.05, 2.0), st.integers(1, 400)), min_size=0, max_size=8
).map(lambda rows: [(index, utility, cost) for index, (utility, cost) in enumerate(rows)])
OFFERS = st.lists(
    st.builds(
        BudgetItem,
        header_tokens=st.integers(0, 200),
        utility=st.floats(0.01, 10),
        passages=PASSAGES,
    ),
    max_size=6,
)


def cost_of(items: list[BudgetItem], bought: list[list[int] | None]) -> int:
    total = 0
    for offer, indexes in zip(items, bought, strict=True):
        if indexes is not None:
            costs = {index: cost for index, _, cost in offer.passages}
            total += offer.header_tokens + sum(costs[index] for index in indexes)
    return total


@given(OFFERS, st.integers(0, 3000))
@settings(max_examples=300, deadline=None)
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
    everything = [[index for index, _, _ in offer.passages] for offer in items]
    budget = cost_of(items, [list(indexes) for indexes in everything])
    assert allocate_tokens(items, budget) == everything


@given(OFFERS, st.integers(0, 2000), st.integers(0, 1000))
@settings(max_examples=300, deadline=None)
def test_more_budget_never_loses_the_best_skill(
    items: list[BudgetItem], budget: int, more: int
) -> None:
    small, large = allocate_tokens(items[:1], budget), allocate_tokens(items[:1], budget + more)
    if small and small[0] is not None:
        assert large[0] is not None


EVEN = st.lists(
    st.builds(
        BudgetItem,
        header_tokens=st.just(20),
        utility=st.floats(0.01, 10),
        passages=st.integers(1, 6).map(
            lambda count: [(index, 1 - index / 10, 50) for index in range(count)]
        ),
    ),
    max_size=5,
)


@given(EVEN, st.integers(0, 1500), st.integers(0, 500))
@settings(max_examples=300, deadline=None)
def test_with_passages_of_one_size_more_budget_spends_no_less(
    items: list[BudgetItem], budget: int, more: int
) -> None:
    small, large = allocate_tokens(items, budget), allocate_tokens(items, budget + more)
    assert cost_of(items, large) >= cost_of(items, small)
    assert sum(x is not None for x in large) >= sum(x is not None for x in small)


def test_a_small_budget_goes_deep_into_the_best_skill() -> None:
    items = [
        BudgetItem(10, 5.0, [(0, 0.9, 40), (1, 1.0, 40), (2, 0.1, 40)]),
        BudgetItem(10, 1.0, [(0, 0.5, 40)]),
    ]
    assert allocate_tokens(items, 100) == [[0, 1], None]
    assert allocate_tokens(items, 140) == [[0, 1], [0]]
    assert allocate_tokens(items, 180) == [[0, 1, 2], [0]]


def test_skills_of_like_worth_all_enter_before_any_goes_deep() -> None:
    items = [BudgetItem(10, utility, [(0, 0.8, 40), (1, 1.0, 40)]) for utility in (1.0, 0.95, 0.9)]
    assert allocate_tokens(items, 150) == [[1], [1], [1]]


def test_the_better_skill_comes_first_when_only_one_fits() -> None:
    items = [BudgetItem(10, 2.0, [(0, 1.0, 50)]), BudgetItem(10, 1.0, [(0, 1.0, 30)])]
    assert allocate_tokens(items, 60) == [[0], None]
    assert allocate_tokens(items, 59) == [None, [0]]


def test_a_best_passage_that_is_too_long_gives_way_to_a_lesser_one() -> None:
    assert allocate_tokens(
        [BudgetItem(10, 1.0, [(0, 1.0, 500), (1, 0.4, 50), (2, 0.6, 60)])], 100
    ) == [[2]]


def test_a_skill_without_passages_is_its_header() -> None:
    assert allocate_tokens([BudgetItem(10, 1.0, [])], 10) == [[]]
    assert allocate_tokens([BudgetItem(10, 1.0, [])], 9) == [None]


def test_worth_of_skill_times_worth_of_passage_decides() -> None:
    items = [
        BudgetItem(0, 1.0, [(0, 1.0, 10), (1, 0.9, 10)]),
        BudgetItem(0, 0.5, [(0, 1.0, 10), (1, 1.0, 10)]),
    ]
    assert allocate_tokens(items, 30) == [[0, 1], [0]]


def test_a_passage_worth_more_than_its_skill_waits_for_the_header() -> None:
    items = [BudgetItem(10, 1.0, [(0, 1.8, 20), (1, 1.2, 20)]), BudgetItem(10, 0.9, [(0, 1.0, 20)])]
    assert allocate_tokens(items, 80) == [[0, 1], [0]]
    assert allocate_tokens(items, 50) == [[0, 1], None]


def test_nothing_offered_nothing_bought() -> None:
    assert allocate_tokens([], 100) == []
