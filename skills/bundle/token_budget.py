"""Allocates the tokens of a bundle to skills and passages by expected worth, not equally."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BudgetItem:
    """A skill with its passages.

    worth: likelihood that the skill is right, above 0. passages: (index, tokens), most needed
    first. enough: number of first passages that suffice for most queries. sufficiency: share of
    queries for which they suffice. first: spend on this skill before any other. needed_by: place
    of the earlier item that needs this skill as a prerequisite, -1 for none.
    """

    header_tokens: int
    worth: float
    passages: Sequence[tuple[int, int]]
    enough: int
    sufficiency: float = 1.0
    first: bool = False
    needed_by: int = -1


@dataclass(frozen=True, slots=True)
class _Portion:
    """Passages of one skill that are bought together: those that are enough, or the rest."""

    place: int
    rest: bool
    passages: Sequence[tuple[int, int]]
    tokens: int
    gain: float

    @property
    def density(self) -> float:
        """Gain per token."""
        return self.gain / max(self.tokens, 1)


def allocate_tokens(items: Sequence[BudgetItem], budget: int) -> list[list[int] | None]:
    """Return the selected passages of each item, ascending, or None if the item is not selected.

    Each skill has two portions: first its header with the passages that are enough, then the rest.
    The gain of a portion is the probability that the skill is right and that the portion makes it
    sufficient. Portions are bought by gain per token, the greedy rule for knapsacks (Dantzig,
    1957). The first portion of a prerequisite is bought at the latest right after that of the skill
    that needs it. If a portion does not fit, its most needed passages that fit are bought. The
    total never exceeds the budget.
    """
    selected: list[list[int] | None] = [None] * len(items)
    left = budget
    for portion in _order_portions(items):
        item, mine = items[portion.place], selected[portion.place]
        if portion.rest and mine is None:
            continue
        room = left if portion.rest else left - item.header_tokens
        bought = _fitting(portion.passages, room)
        if not portion.rest and (room < 0 or (item.passages and not bought)):
            continue
        spent = sum(tokens for _, tokens in bought)
        left = room - spent
        selected[portion.place] = (mine or []) + [index for index, _ in bought]
    return [sorted(mine) if mine is not None else None for mine in selected]


def _order_portions(items: Sequence[BudgetItem]) -> list[_Portion]:
    """Return the portions in the order in which they are bought."""
    portions = [portion for place, item in enumerate(items) for portion in _portions(place, item)]
    entries = {portion.place: portion.density for portion in portions if not portion.rest}
    firsts = [item.first for item in items]
    for place, item in enumerate(items):  # a skill stands before its prerequisites
        if item.needed_by >= 0:
            entries[place] = max(entries[place], entries[item.needed_by])
            firsts[place] = firsts[place] or firsts[item.needed_by]

    def rank(portion: _Portion) -> tuple[bool, float, int, bool]:
        density = portion.density if portion.rest else entries[portion.place]
        return (not firsts[portion.place], -density, portion.place, portion.rest)

    return sorted(portions, key=rank)


def _portions(place: int, item: BudgetItem) -> Iterator[_Portion]:
    """Yield two portions, enough and rest; a single one if the rest is worth as much per token."""
    enough, rest = item.passages[: item.enough], item.passages[item.enough :]
    costs = item.header_tokens + _tokens(enough), _tokens(rest)
    gains = item.worth * item.sufficiency, item.worth * (1 - item.sufficiency)
    if not rest or gains[1] * costs[0] >= gains[0] * costs[1]:
        yield _Portion(place, False, item.passages, sum(costs), item.worth)
    else:
        yield _Portion(place, False, enough, costs[0], gains[0])
        yield _Portion(place, True, rest, costs[1], gains[1])


def _tokens(passages: Sequence[tuple[int, int]]) -> int:
    return sum(tokens for _, tokens in passages)


def _fitting(passages: Sequence[tuple[int, int]], room: int) -> list[tuple[int, int]]:
    """Return the passages that fit, taken in order; a passage that does not fit is skipped."""
    bought = []
    for index, tokens in passages:
        if tokens <= room:
            bought.append((index, tokens))
            room -= tokens
    return bought
