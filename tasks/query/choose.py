"""Choose: which of the ranked skills make the bundle (spec §5.5)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from config.settings import ChoiceSettings
from graph.protocol import Adjacency, LinkType
from skills.skill_policy import PolicyViolation

DECLARED_WEIGHT = 0.999
"""Weight of a dependency that a skill declares; lesser ones are only mentioned."""

_MAX_DEPENDENCIES = 20
_DEPENDENCY_SCORE_SHARE = 0.9
"""A declared dependency matters almost as much as the skill that cannot do without it."""

FindWithheld = Callable[[Sequence[str]], Mapping[str, PolicyViolation]]
"""Of some skills, those that the policy keeps back."""

ReadAdjacency = Callable[[Sequence[str]], Mapping[str, Adjacency]]


@dataclass(frozen=True, slots=True)
class ChosenSkill:
    """A skill of the bundle, with why it is there. `needed_by` names what declared it."""

    skill_id: str
    score: float
    why: tuple[str, ...]
    needed_by: str = ""


@dataclass(slots=True)
class SkillChoice:
    """Chosen skills best first, and those considered and left out with the reason.

    withheld: declared dependencies that the policy keeps back. least: the score below which
    nothing is considered.
    """

    chosen: list[ChosenSkill] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    withheld: dict[str, PolicyViolation] = field(default_factory=dict)
    min_score: float = 0.0


def choose_skills(
    ranked: Sequence[tuple[str, float]],
    owners: Collection[str],
    reasons: Mapping[str, Sequence[str]],
    read_rows: ReadAdjacency,
    settings: ChoiceSettings,
    top: int,
    find_withheld: FindWithheld = lambda _: {},
) -> SkillChoice:
    """Walk the ranking: best first, each with what it declares to need, one of a group of
    alternatives, never two in conflict, nothing far below the best.

    `ranked` is (skill_id, score) best first, scores above 0; `owners` of a format that the task
    names may lie below the best by any measure; `reasons` says why a skill ranks. `read_rows`
    reads the rows of a few skills at a time. `refuse` is asked about what is not ranked but needed.
    """
    choice = SkillChoice()
    if not ranked:
        return choice
    choice.min_score = settings.relative * ranked[0][1]
    shortlist = [
        (skill_id, score)
        for skill_id, score in ranked[: 2 * top]
        if score > 0 and (score >= choice.min_score or skill_id in owners)
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
        obstacle = _find_conflict(skill_id, taken, rows)
        better = "" if obstacle else _find_better_alternative(rows.get(skill_id), taken, folded)
        if better:
            folded[skill_id] = better
            obstacle = f"alternative to {better}, which ranks better"
        if obstacle:
            choice.left_out.append((skill_id, obstacle))
            continue
        choice.chosen.append(ChosenSkill(skill_id, score, tuple(reasons.get(skill_id, ()))))
        _add_dependencies(
            choice, skill_id, score, rows, _DependencyLookup(read_rows, find_withheld, scores)
        )
    choice.left_out = _first_reasons(choice)
    return choice


def _first_reasons(choice: SkillChoice) -> list[tuple[str, str]]:
    """Each skill that was left out with its first reason, but for those that came along later."""
    taken = {chosen.skill_id for chosen in choice.chosen}
    reasons: dict[str, str] = {}
    for skill_id, reason in choice.left_out:
        if skill_id not in taken:
            reasons.setdefault(skill_id, reason)
    return list(reasons.items())


def _find_conflict(skill_id: str, taken: set[str], rows: Mapping[str, Adjacency]) -> str:
    """Why a skill cannot join those taken, "" when it can."""
    row = rows.get(skill_id)
    for neighbour in row.neighbours if row else ():
        if neighbour.type is LinkType.CONFLICT and neighbour.skill_id in taken:
            return f"conflicts with {neighbour.skill_id}"
    return ""


def _find_better_alternative(
    row: Adjacency | None, taken: set[str], folded: Mapping[str, str]
) -> str:
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
class _DependencyLookup:
    """What tells about skills that others need."""

    read_rows: ReadAdjacency
    find_withheld: FindWithheld
    scores: Mapping[str, float]


def _record_withheld_dependencies(
    choice: SkillChoice,
    owners: Sequence[str],
    rows: Mapping[str, Adjacency],
    needs: _DependencyLookup,
) -> None:
    """Note which of what these skills declare to need the policy keeps back."""
    declared = {name: owner for owner in owners for name in _declared_dependencies(rows.get(owner))}
    for name, violation in needs.find_withheld(sorted(declared)).items():
        reason = f"declared dependency of {declared[name]}; {violation.reason}"
        choice.withheld.setdefault(name, PolicyViolation(violation.kind, reason))


def _add_dependencies(
    choice: SkillChoice,
    skill_id: str,
    score: float,
    rows: dict[str, Adjacency],
    needs: _DependencyLookup,
) -> None:
    """Everything the skill declares to need, transitively, right behind it."""
    frontier, seen = [skill_id], {skill_id}
    while frontier:
        following: list[str] = []
        wanted = {
            name for owner in frontier for name in _declared_dependencies(rows.get(owner))
        } - rows.keys()
        if wanted:
            rows.update(needs.read_rows(sorted(wanted)))
        _record_withheld_dependencies(choice, frontier, rows, needs)
        for owner in frontier:
            for needed in _declared_dependencies(rows.get(owner)):
                taken = {chosen.skill_id for chosen in choice.chosen}
                if needed in seen or needed in choice.withheld:
                    continue
                seen.add(needed)
                if len(seen) > _MAX_DEPENDENCIES:
                    reason = f"declared dependency of {owner}, beyond the {_MAX_DEPENDENCIES} first"
                    choice.left_out.append((needed, reason))
                    continue
                if needed in taken:
                    continue
                obstacle = _find_conflict(needed, taken - {owner}, rows)
                if obstacle:
                    reason = f"declared dependency of {owner}, but {obstacle}"
                    choice.left_out.append((needed, reason))
                    continue
                following.append(needed)
                choice.chosen.append(
                    ChosenSkill(
                        needed,
                        max(needs.scores.get(needed, 0.0), score * _DEPENDENCY_SCORE_SHARE),
                        (f"declared dependency of {owner}",),
                        needed_by=owner,
                    )
                )
        frontier = following


def _declared_dependencies(row: Adjacency | None) -> list[str]:
    return [
        neighbour.skill_id
        for neighbour in (row.neighbours if row else ())
        if neighbour.type is LinkType.DEPENDENCY
        and neighbour.forward
        and neighbour.weight >= DECLARED_WEIGHT
    ]
