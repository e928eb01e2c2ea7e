"""Filling of bundles of a session: passages that were sent before are not sent again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from graph.records import Link
from skills.bundle.budget_form import BudgetForm
from skills.bundle.model import Bundle
from skills.bundle.token_budget import BudgetItem, allocate_tokens
from tasks.query.filling.allocation import (
    Allocation,
    BudgetTooSmallError,
    allocate,
    allocate_and_fill,
    allocate_smallest,
    check_size,
    drop_least_useful,
)
from tasks.query.filling.filler import BundleFiller
from tasks.query.select_passages import SkillPassages
from tasks.query.session.portions import drop_sent, plan_portions


def fill_session_bundle(
    shell: Bundle,
    skills: Sequence[SkillPassages],
    links: tuple[Link, ...],
    form: BudgetForm,
    *,
    brief: bool,
    names_left_out: bool = True,
) -> Bundle:
    """Fill the bundle of a query with passages that its session has not sent before.

    brief: send of each skill its portion, see `plan_portions`. Otherwise send what the same query
    would send without a session, and with the remaining tokens further passages that are enough. In
    both cases every skill that would be sent without a session is sent, or was sent before.
    """
    fill_again = partial(fill_session_bundle, shell, skills, links, form)
    unsent = plan_portions(skills) if brief else [drop_sent(skill) for skill in skills]
    offered = [place for place, one in enumerate(unsent) if one.passages or not one.sent]
    filler = BundleFiller(
        shell, [unsent[place] for place in offered], links, form, names_left_out=names_left_out
    )
    budget = shell.budget
    empty = filler.fill([None] * len(offered))
    allocated: Allocation = []
    filled = empty
    if brief and offered:
        allocated, filled = allocate(filler)
        allocated = allocated or [None] * len(offered)
    if offered and (not brief or None in allocated):
        whole, names_alone = _allocate_without_session(shell, skills, links, form)
        if names_left_out and not names_alone:
            return fill_again(brief=brief, names_left_out=False)
        owed = [_list_owed(unsent[place], whole[place]) for place in offered]
        if not brief or _lacks(allocated, owed, filler.skills):
            allocated, filled = _fill_owed(filler, owed)
        if brief and (filled.tokens > budget or _lacks(allocated, owed, filler.skills)):
            # A passage with the note about its omitted parts may take more tokens than all of a
            # short skill.
            with suppress(BudgetTooSmallError):
                return fill_again(brief=False, names_left_out=names_left_out)
    if filled.skills and filled.tokens <= budget:
        return filled
    if names_left_out and (empty.did_not_fit is not None or empty.tokens > budget):
        return fill_again(brief=brief, names_left_out=False)
    if shell.already_sent and empty.tokens <= budget:
        return empty
    if not offered:
        raise BudgetTooSmallError(
            f"a budget of {budget} tokens has no room for the names of the skills that were sent "
            f"earlier; give at least {empty.tokens}"
        )
    return check_size(filler.fill(allocate_smallest(filler)))


def _allocate_without_session(
    shell: Bundle, skills: Sequence[SkillPassages], links: tuple[Link, ...], form: BudgetForm
) -> tuple[Allocation, bool]:
    """Return what the same query would send without a session, by skill, and whether it would name
    the skills that are left out."""
    alone = shell.model_copy(update={"already_sent": (), "brief": False})
    unsent = [replace(skill, sent=frozenset()) for skill in skills]
    allocated, filled, names_left_out = allocate_and_fill(alone, unsent, links, form)
    if filled.tokens > shell.budget:
        allocated = [None] * len(skills)
    return allocated, names_left_out


def _list_owed(unsent: SkillPassages, whole: list[int] | None) -> list[int] | None:
    """Return the passages of `whole` that may be sent; if there are none and the skill was not sent
    before, the first of `whole`. None for a skill of which nothing is to be sent."""
    if whole is None:
        return None
    owed = sorted(set(unsent.passages).intersection(whole))
    if unsent.sent:
        return owed or None
    return owed or whole[:1]


def _lacks(allocated: Allocation, owed: Allocation, skills: Sequence[SkillPassages]) -> bool:
    """Return whether a skill that was not sent before is owed and not allocated."""
    return any(
        indexes is None and wanted is not None and not skill.sent
        for indexes, wanted, skill in zip(allocated, owed, skills, strict=True)
    )


def _fill_owed(filler: BundleFiller, owed: Allocation) -> tuple[Allocation, Bundle]:
    """Return the owed passages, and with the remaining tokens further passages that are enough."""
    filled = filler.fill(owed)
    more = _add_enough(filler.items, owed, filler.budget - filled.tokens)
    if more != owed and (fuller := filler.fill(more)).tokens <= filler.budget:
        return more, fuller
    allocated = [None if indexes is None else list(indexes) for indexes in owed]
    while filled.tokens > filler.budget and drop_least_useful(filler, allocated, filled):
        filled = filler.fill(allocated)
    return allocated, filled


def _add_enough(items: Sequence[BudgetItem], allocated: Allocation, room: int) -> Allocation:
    """Return the allocation with further passages from the enough ones of each skill."""
    missing = []
    for item, indexes in zip(items, allocated, strict=True):
        known = set(indexes or ())
        wanted = [one for one in item.passages[: item.enough] if one[0] not in known]
        header = item.header_tokens if indexes is None else 0
        missing.append(
            replace(item, header_tokens=header, passages=wanted, enough=len(wanted), needed_by=-1)
        )
    places = [place for place, item in enumerate(missing) if item.passages]
    bought = allocate_tokens([missing[place] for place in places], max(room, 0))
    found = dict(zip(places, bought, strict=True))
    return [
        indexes if not found.get(place) else sorted({*(indexes or ()), *(found[place] or ())})
        for place, indexes in enumerate(allocated)
    ]
