"""Allocates the tokens of a bundle to skills and passages by expected worth, not equally."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import groupby
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class BudgetItem:
    """A skill with its passages.

    worth: likelihood that the skill is right, above 0. passages: (index, tokens), most needed
    first. enough: number of first passages that suffice for most queries. sufficiency: share of
    queries for which they suffice. first: spend on this skill, and on enough of its dependencies,
    before any other. needed_by: place of the item that needs this skill as a dependency, -1 for
    none. together: by index, a key that passages share which follow each other and are bought
    together or not at all.
    """

    header_tokens: int
    worth: float
    passages: Sequence[tuple[int, int]]
    enough: int
    sufficiency: float = 1.0
    first: bool = False
    needed_by: int = -1
    together: Mapping[int, int] = field(default_factory=dict)


class _Portion(NamedTuple):
    """Passages of the skill at `place` that are bought together: those that are enough, or the
    rest. Sorts in the order of purchase."""

    is_deferred: bool
    negative_density: float
    place: int
    is_rest: bool
    passages: Sequence[tuple[int, int]]


def allocate_tokens(items: Sequence[BudgetItem], budget: int) -> list[list[int] | None]:
    """Return the selected passages of each item, ascending, or None if the item is not selected.

    Each skill has two portions: first its header with the passages that are enough, then the rest.
    The gain of a portion is the probability that the skill is right and that the portion makes it
    sufficient. Portions are bought by gain per token, the greedy rule for knapsacks (Dantzig,
    1957). The first portion of a dependency is bought right after that of the skill that needs
    it, and not without it; its rest is bought by its own gain. If a portion does not fit, its most
    needed passages that fit are bought. The total never exceeds the budget.
    """
    selected: list[list[int] | None] = [None] * len(items)
    left = budget
    dependencies: dict[int, list[int]] = defaultdict(list)
    for place, item in enumerate(items):
        dependencies[item.needed_by].append(place)
    portions = [_first_portion(place, items[place]) for place in dependencies[-1]]
    heapify(portions)
    while portions:
        portion = heappop(portions)
        place, item = portion.place, items[portion.place]
        room = left if portion.is_rest else left - item.header_tokens
        bought = _fitting(portion.passages, room, item.together)
        if not portion.is_rest and (room < 0 or (item.passages and not bought)):
            continue
        left = room - _tokens(bought)
        selected[place] = sorted([*(selected[place] or ()), *(index for index, _ in bought)])
        if portion.is_rest:
            continue
        if rest := item.passages[len(portion.passages) :]:
            heappush(portions, _rest_portion(place, item, rest))
        for other in dependencies[place]:
            heappush(portions, _dependency_portion(other, items[other], portion))
    return selected


def _first_portion(place: int, item: BudgetItem) -> _Portion:
    """Return the passages that are enough; all of them if the rest is worth as much per token."""
    enough, rest = item.passages[: item.enough], item.passages[item.enough :]
    costs = item.header_tokens + _tokens(enough), _tokens(rest)
    gains = item.worth * item.sufficiency, item.worth * (1 - item.sufficiency)
    if not rest or gains[1] * costs[0] >= gains[0] * costs[1]:
        return _portion(place, item, item.passages, item.worth, sum(costs))
    return _portion(place, item, enough, gains[0], costs[0])


def _dependency_portion(place: int, item: BudgetItem, owner: _Portion) -> _Portion:
    """Return the first portion of a dependency, to be bought right after that of its owner."""
    own = _first_portion(place, item)
    return own._replace(
        is_deferred=min(own.is_deferred, owner.is_deferred),
        negative_density=min(own.negative_density, owner.negative_density),
    )


def _rest_portion(place: int, item: BudgetItem, rest: Sequence[tuple[int, int]]) -> _Portion:
    gain = item.worth * (1 - item.sufficiency)
    return _portion(place, item, rest, gain, _tokens(rest))._replace(is_rest=True)


def _portion(
    place: int, item: BudgetItem, passages: Sequence[tuple[int, int]], gain: float, cost: int
) -> _Portion:
    return _Portion(not item.first, -gain / max(cost, 1), place, False, passages)


def _tokens(passages: Sequence[tuple[int, int]]) -> int:
    return sum(tokens for _, tokens in passages)


def _fitting(
    passages: Sequence[tuple[int, int]], room: int, together: Mapping[int, int]
) -> list[tuple[int, int]]:
    """Return the passages that fit, taken in order; passages that do not fit are skipped."""
    bought: list[tuple[int, int]] = []
    for _, group in groupby(passages, lambda passage: together.get(passage[0], passage[0])):
        unit = list(group)
        tokens = _tokens(unit)
        if tokens <= room:
            bought += unit
            room -= tokens
    return bought
