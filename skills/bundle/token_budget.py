"""How the tokens of a bundle are spent across skills: by expected worth, not in equal parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BudgetItem:
    """What one skill would like to send.

    base: tokens of its header. worth: how much the skill is expected to matter, above 0.
    passages: (index, worth of its tokens within the skill, tokens), any order; the worth is above
    0, about 1 for the passage that matters most, and comparable between skills.
    """

    header_tokens: int
    utility: float
    passages: Sequence[tuple[int, float, int]]


def allocate_tokens(items: Sequence[BudgetItem], budget: int) -> list[list[int] | None]:
    """For each offer the passages that are bought, ascending, or None when the skill is not.

    A skill enters with its header and its best passage, which together are worth no less than the
    skill; a further passage is worth that × its worth within the skill. What is worth most is
    bought first, so a small budget goes deep into the best skills before it reaches the last ones.
    The costs of what is bought never add up to more than the budget.
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
    # An entry sorts before passages of the same worth and place: its index is the lowest.
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
    """The header with the best passage that fits, and their cost; None when none fits."""
    if not item.passages:
        return ([], item.header_tokens) if item.header_tokens <= left else None
    fitting = [passage for passage in item.passages if item.header_tokens + passage[2] <= left]
    best = min(fitting, key=lambda passage: (-passage[1], passage[0]), default=None)
    return None if best is None else ([best[0]], item.header_tokens + best[2])
