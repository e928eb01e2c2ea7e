"""Allocation of a bundle's budget to the passages of its skills, with exact counts."""

from __future__ import annotations

from collections.abc import Sequence

from config.errors import UsageError
from graph.records import Link
from skills.bundle.budget_form import BudgetForm
from skills.bundle.model import Bundle
from skills.bundle.token_budget import BudgetItem, allocate_tokens
from tasks.query.filling.filler import BundleFiller, make_budget_item
from tasks.query.select_passages import SkillPassages

_EXTRA_ROUNDS = 4
"""Maximum times that the remaining budget is allocated again."""

Allocation = list[list[int] | None]
"""The passages to send of each skill, None for a skill that is not sent."""


class BudgetTooSmallError(UsageError):
    """The budget has no room for one passage, or for the names of what was sent earlier."""


def allocate_and_fill(
    shell: Bundle, skills: Sequence[SkillPassages], links: Sequence[Link], form: BudgetForm
) -> tuple[Allocation, Bundle, bool]:
    """Return the allocation of the budget, its bundle, and whether that names skills that are left
    out: not where their names would leave no room for a passage.

    If nothing fits, they are those of the best skill with its shortest passage.
    """
    for names_left_out in (True, False):
        filler = BundleFiller(shell, skills, links, form, names_left_out=names_left_out)
        items = [make_budget_item(filler, place) for place in range(len(skills))]
        allocated, filled = allocate(filler, items, shell.budget)
        if allocated:
            return allocated, filled, names_left_out
    allocated = allocate_smallest(items[0], len(items))
    return allocated, filler.fill(allocated), False


def allocate(
    filler: BundleFiller, items: list[BudgetItem], budget: int
) -> tuple[Allocation, Bundle]:
    """Return the allocation of the budget and its bundle; an empty one if no passage fits."""
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
) -> tuple[Allocation, Bundle]:
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


def _loses_skill(allocated: Allocation, more: Allocation) -> bool:
    """Return whether a skill is allocated passages in the first, and not in the second."""
    return any(
        before is not None and after is None for before, after in zip(allocated, more, strict=True)
    )


def check_size(filled: Bundle) -> Bundle:
    """Return a bundle of one passage; raises BudgetTooSmallError if it exceeds the budget."""
    if filled.tokens > filled.budget:
        raise BudgetTooSmallError(
            f"a budget of {filled.budget} tokens is less than one passage needs; "
            f"give at least {filled.tokens}"
        )
    return filled


def allocate_smallest(best: BudgetItem, count: int) -> Allocation:
    """Return an allocation to `count` skills of which only the first gets a passage, its
    shortest."""
    shortest = min(best.passages, key=lambda passage: (passage[1], passage[0]), default=None)
    return [[shortest[0]] if shortest else [], *[None] * (count - 1)]


def drop_least_useful(items: Sequence[BudgetItem], allocated: Allocation, excess: int) -> bool:
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
