"""Allocation of a bundle's budget to the passages of its skills, with exact counts."""

from __future__ import annotations

from collections.abc import Sequence

from config.errors import UsageError
from graph.records import Link
from skills.bundle.budget_form import BudgetForm
from skills.bundle.model import Bundle
from skills.bundle.token_budget import allocate_tokens
from tasks.query.filling.filler import BundleFiller
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
        allocated, filled = allocate(filler)
        if allocated:
            return allocated, filled, names_left_out
    allocated = allocate_smallest(filler)
    return allocated, filler.fill(allocated), False


def allocate(filler: BundleFiller) -> tuple[Allocation, Bundle]:
    """Return the allocation of the budget and its bundle; an empty one if no passage fits."""
    allocated, filled = _spend_budget(filler)
    while filled.tokens > filler.budget or not filled.skills:
        if not drop_least_useful(filler, allocated, filled):
            return [], filled
        filled = filler.fill(allocated)
    return allocated, filled


def _spend_budget(filler: BundleFiller) -> tuple[Allocation, Bundle]:
    """Return the passages to send by skill, and their bundle: of the most room found for which the
    bundle stays within the budget, or of the first if even that exceeds it.

    Passages that are sent together share their headings, so the sum of their costs is too high (by
    a quarter over real skills): the remaining budget is allocated again, a few times, and half of
    it where all of it was too much or would cost the place of a skill.
    """
    items, budget = filler.items, filler.budget
    # Maximum cost of the Markdown without any skill: all skills are named as left out.
    room = budget - filler.fill([None] * len(items)).tokens
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


def allocate_smallest(filler: BundleFiller) -> Allocation:
    """Return an allocation of which only the first skill gets passages: its shortest, or all, if
    these take fewer tokens than one with the note about its omitted parts."""
    best, *others = filler.items
    shortest = min(best.passages, key=lambda passage: (passage[1], passage[0]), default=None)
    choices = ([shortest[0]] if shortest else [], sorted(index for index, _ in best.passages))
    allocations: list[Allocation] = [[chosen, *[None] * len(others)] for chosen in choices]
    return min(allocations, key=lambda allocated: filler.fill(allocated).tokens)


def drop_least_useful(filler: BundleFiller, allocated: Allocation, filled: Bundle) -> bool:
    """Remove the least needed passages, of the skill of least worth first, until about as many
    tokens are saved as the bundle exceeds its budget by; if every skill has only one passage,
    remove the last skill.

    Returns False if one skill with one passage is left.
    """
    items, excess, dropped = filler.items, filled.tokens - filler.budget, False
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
