"""Allocation of a bundle's budget to the passages of its skills, with exact counts."""

from __future__ import annotations

from collections.abc import Sequence

from config.errors import UsageError
from skills.bundle.model import Bundle
from skills.bundle.token_budget import BudgetItem, allocate_tokens
from tasks.query.filling.filler import BundleFiller

_EXTRA_ROUNDS = 4
"""Maximum times that the remaining budget is allocated again."""


class BudgetTooSmallError(UsageError):
    """The budget has no room for one passage, or for the names of what was sent earlier."""


def allocate(
    filler: BundleFiller, items: list[BudgetItem], budget: int
) -> tuple[list[list[int] | None], Bundle]:
    """Return the passages to send by skill, and their bundle; no passages if not even one fits."""
    # Maximum cost of the Markdown without any skill: all skills are named as left out.
    fixed = filler.fill([None] * len(items)).tokens
    allocated, filled = _spend_budget(filler, items, budget, fixed)
    while filled.tokens > budget or not filled.skills:
        if not drop_least_useful(items, allocated, filled.tokens - budget):
            return [], filled
        filled = filler.fill(allocated)
    return allocated, filled


def _spend_budget(
    filler: BundleFiller, items: Sequence[BudgetItem], budget: int, fixed: int
) -> tuple[list[list[int] | None], Bundle]:
    """Return the passages to send by skill, and their bundle: of the most room found for which the
    bundle stays within the budget, or of the first if even that exceeds it.

    Passages that are sent together share their headings, so the sum of their costs is too high (by
    a quarter over real skills): the remaining budget is allocated again, a few times, and half of
    it where all of it was too much or would cost the place of a skill.
    """
    room = budget - fixed
    allocated = allocate_tokens(items, room)
    filled = filler.fill(allocated)
    too_much = 0
    for _ in range(_EXTRA_ROUNDS):
        wider = (room + too_much) // 2 if too_much else room + max(budget - filled.tokens, 0)
        if wider == room:
            break
        more = allocate_tokens(items, wider)
        fuller = filled if more == allocated else filler.fill(more)
        if fuller.tokens > budget or _loses_skill(allocated, more):
            too_much = wider
        else:
            room, allocated, filled = wider, more, fuller
    return allocated, filled


def _loses_skill(allocated: Sequence[list[int] | None], more: Sequence[list[int] | None]) -> bool:
    """Return whether a skill is allocated passages in the first, and not in the second."""
    return any(
        before is not None and after is None for before, after in zip(allocated, more, strict=True)
    )


def fill_smallest(filler: BundleFiller, best: BudgetItem, budget: int) -> Bundle:
    """Return a bundle of the best skill with its shortest passage; raises BudgetTooSmallError if
    even that exceeds the budget."""
    filled = filler.fill(allocate_smallest(best, len(filler.skills)))
    if filled.tokens <= budget:
        return filled
    raise BudgetTooSmallError(
        f"a budget of {budget} tokens is less than one passage needs; give at least {filled.tokens}"
    )


def allocate_smallest(best: BudgetItem, count: int) -> list[list[int] | None]:
    """Return an allocation to `count` skills of which only the first gets a passage, its
    shortest."""
    shortest = min(best.passages, key=lambda passage: (passage[1], passage[0]), default=None)
    return [[shortest[0]] if shortest else [], *[None] * (count - 1)]


def drop_least_useful(
    items: Sequence[BudgetItem], allocated: list[list[int] | None], excess: int
) -> bool:
    """Remove the least needed passages, of the skill of least worth first, until about `excess`
    tokens are saved; if every skill has only one passage, remove the last skill.

    Returns False if one skill with one passage is left.
    """
    dropped = False
    for place in sorted(
        range(len(items)), key=lambda place: (items[place].first, items[place].worth)
    ):
        for index, cost in reversed(items[place].passages):
            indexes = allocated[place]
            if excess > 0 and indexes is not None and index in indexes and len(indexes) > 1:
                indexes.remove(index)
                excess -= cost
                dropped = True
    sent = [place for place, indexes in enumerate(allocated) if indexes is not None]
    if not dropped and len(sent) > 1:
        allocated[sent[-1]] = None
        dropped = True
    return dropped
