"""Choose: which of the ranked skills make the bundle (spec §5.5)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from config.settings import ChoiceSettings
from graph.protocol import LinkType, Row
from skills.policy import Refusal

DECLARED_WEIGHT = 0.999
"""Weight of a dependency that a skill declares; lesser ones are only mentioned."""

_MAX_NEEDED = 20
_NEEDED_SHARE = 0.9
"""A declared dependency matters almost as much as the skill that cannot do without it."""

Refuse = Callable[[Sequence[str]], Mapping[str, Refusal]]
"""Of some skills, those that the policy keeps back."""

ReadRows = Callable[[Sequence[str]], Mapping[str, Row]]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A skill of the bundle, with why it is there. `needed_by` names what declared it."""

    skill_id: str
    score: float
    why: tuple[str, ...]
    needed_by: str = ""


@dataclass(slots=True)
class Choice:
    """Chosen skills best first, and those considered and left out with the reason.

    withheld: declared dependencies that the policy keeps back. least: the score below which
    nothing is considered.
    """

    chosen: list[Chosen] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    withheld: dict[str, Refusal] = field(default_factory=dict)
    least: float = 0.0


def choose_skills(
    ranked: Sequence[tuple[str, float]],
    owners: Collection[str],
    reasons: Mapping[str, Sequence[str]],
    read_rows: ReadRows,
    settings: ChoiceSettings,
    top: int,
    refuse: Refuse = lambda _: {},
) -> Choice:
    """Walk the ranking: best first, each with what it declares to need, one of a group of
    alternatives, never two in conflict, nothing far below the best.

    `ranked` is (skill_id, score) best first, scores above 0; `owners` of a format that the task
    names may lie below the best by any measure; `reasons` says why a skill ranks. `read_rows`
    reads the rows of a few skills at a time. `refuse` is asked about what is not ranked but needed.
    """
    choice = Choice()
    if not ranked:
        return choice
    choice.least = settings.relative * ranked[0][1]
    shortlist = [
        (skill_id, score)
        for skill_id, score in ranked[: 2 * top]
        if score > 0 and (score >= choice.least or skill_id in owners)
    ]
    rows = dict(read_rows([skill_id for skill_id, _ in shortlist]))
    scores = dict(shortlist)
    folded: dict[str, str] = {}
    for skill_id, score in shortlist:
        if len(choice.chosen) >= top:
            break
        taken = {chosen.skill_id for chosen in choice.chosen}
        if skill_id in taken:
            continue
        obstacle = _obstacle(skill_id, taken, rows)
        better = "" if obstacle else _better(rows.get(skill_id), taken, folded)
        if better:
            folded[skill_id] = better
            obstacle = f"alternative to {better}, which ranks better"
        if obstacle:
            choice.left_out.append((skill_id, obstacle))
            continue
        choice.chosen.append(Chosen(skill_id, score, tuple(reasons.get(skill_id, ()))))
        _add_needed(choice, skill_id, score, rows, _Needs(read_rows, refuse, scores))
    choice.left_out = _told_once(choice)
    return choice


def _told_once(choice: Choice) -> list[tuple[str, str]]:
    """Each skill that was left out with its first reason, but for those that came along later."""
    taken = {chosen.skill_id for chosen in choice.chosen}
    told: dict[str, str] = {}
    for skill_id, reason in choice.left_out:
        if skill_id not in taken:
            told.setdefault(skill_id, reason)
    return list(told.items())


def _obstacle(skill_id: str, taken: set[str], rows: Mapping[str, Row]) -> str:
    """Why a skill cannot join those taken, "" when it can."""
    row = rows.get(skill_id)
    for neighbour in row.neighbours if row else ():
        if neighbour.type is LinkType.CONFLICT and neighbour.skill_id in taken:
            return f"conflicts with {neighbour.skill_id}"
    return ""


def _better(row: Row | None, taken: set[str], folded: Mapping[str, str]) -> str:
    """The chosen skill that a skill is an alternative to, "" when to none.

    Also by way of another that was folded under it: a skill keeps only so many of its copies.
    """
    for neighbour in row.neighbours if row else ():
        if neighbour.type is LinkType.ALTERNATIVE:
            if neighbour.skill_id in taken:
                return neighbour.skill_id
            if neighbour.skill_id in folded:
                return folded[neighbour.skill_id]
    return ""


@dataclass(frozen=True, slots=True)
class _Needs:
    """What tells about skills that others need."""

    read_rows: ReadRows
    refuse: Refuse
    scores: Mapping[str, float]


def _withhold_needed(
    choice: Choice, owners: Sequence[str], rows: Mapping[str, Row], needs: _Needs
) -> None:
    """Note which of what these skills declare to need the policy keeps back."""
    declared = {name: owner for owner in owners for name in _declared(rows.get(owner))}
    for name, refusal in needs.refuse(sorted(declared)).items():
        reason = f"declared dependency of {declared[name]}; {refusal.reason}"
        choice.withheld.setdefault(name, Refusal(refusal.kind, reason))


def _add_needed(
    choice: Choice, skill_id: str, score: float, rows: dict[str, Row], needs: _Needs
) -> None:
    """Everything the skill declares to need, transitively, right behind it."""
    frontier, seen = [skill_id], {skill_id}
    while frontier:
        following: list[str] = []
        wanted = {name for owner in frontier for name in _declared(rows.get(owner))} - rows.keys()
        if wanted:
            rows.update(needs.read_rows(sorted(wanted)))
        _withhold_needed(choice, frontier, rows, needs)
        for owner in frontier:
            for needed in _declared(rows.get(owner)):
                taken = {chosen.skill_id for chosen in choice.chosen}
                if needed in seen or needed in choice.withheld:
                    continue
                seen.add(needed)
                if len(seen) > _MAX_NEEDED:
                    reason = f"declared dependency of {owner}, beyond the {_MAX_NEEDED} first"
                    choice.left_out.append((needed, reason))
                    continue
                if needed in taken:
                    continue
                obstacle = _obstacle(needed, taken - {owner}, rows)
                if obstacle:
                    reason = f"declared dependency of {owner}, but {obstacle}"
                    choice.left_out.append((needed, reason))
                    continue
                following.append(needed)
                choice.chosen.append(
                    Chosen(
                        needed,
                        max(needs.scores.get(needed, 0.0), score * _NEEDED_SHARE),
                        (f"declared dependency of {owner}",),
                        needed_by=owner,
                    )
                )
        frontier = following


def _declared(row: Row | None) -> list[str]:
    return [
        neighbour.skill_id
        for neighbour in (row.neighbours if row else ())
        if neighbour.type is LinkType.DEPENDENCY
        and neighbour.forward
        and neighbour.weight >= DECLARED_WEIGHT
    ]
