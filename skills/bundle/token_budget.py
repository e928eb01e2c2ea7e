"""Allocates the tokens of a bundle to skills by expected utility, not in equal parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BudgetItem:
    """A skill with its candidate passages.

    utility: expected utility of the skill, above 0. passages: (index, utility of the passage within
    the skill, tokens) in any order; the utility is above 0, about 1 for the best passage, and
    comparable between skills.
    """

    header_tokens: int
    utility: float
    passages: Sequence[tuple[int, float, int]]


def allocate_tokens(items: Sequence[BudgetItem], budget: int) -> list[list[int] | None]:
    """The selected passages of each item, ascending, or None if the item is not selected.

    A skill is selected with its header and its best passage, at a utility of at least that of the
    skill; a further passage has the skill's utility × its utility within the skill. The highest
    utility comes first, so a small budget is spent on the best skills before it reaches the last.
    The total never exceeds the budget.
    """
    selected: list[list[int] | None] = [None] * len(items)
    left = budget
    entries = [
        (-item.utility * max([1.0, *(utility for _, utility, _ in item.passages)]), place, -1, 0)
        for place, item in enumerate(items)
    ]
    passages = [
        (-item.utility * utility, place, index, cost)
        for place, item in enumerate(items)
        for index, utility, cost in item.passages
    ]
    # An entry sorts before passages of the same utility and item: its index is the lowest.
    for _, place, index, cost in sorted(entries + passages):
        mine = selected[place]
        if index < 0:
            entry = _cheapest_entry(items[place], left)
            if entry is not None:
                selected[place], spent = entry
                left -= spent
        elif mine is not None and index not in mine and cost <= left:
            mine.append(index)
            left -= cost
    return [sorted(mine) if mine is not None else None for mine in selected]


def _cheapest_entry(item: BudgetItem, left: int) -> tuple[list[int], int] | None:
    """The best passage that fits with the header, and their tokens; None if none fits."""
    if not item.passages:
        return ([], item.header_tokens) if item.header_tokens <= left else None
    fitting = [passage for passage in item.passages if item.header_tokens + passage[2] <= left]
    best = min(fitting, key=lambda passage: (-passage[1], passage[0]), default=None)
    return None if best is None else ([best[0]], item.header_tokens + best[2])
