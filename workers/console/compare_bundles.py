"""Comparison of two answers to a task, for example with and without a stage."""

from __future__ import annotations

from dataclasses import dataclass

from skills.bundle.model import Bundle, BundleSkill


@dataclass(frozen=True, slots=True)
class BundleChange:
    """Difference of two answers.

    before: id of the earlier query. added, removed: skill ids. moved: places before and after, by
    skill id. lines: numbers of newly sent and of no longer sent lines, by id of a skill in both.
    """

    before: str
    added: tuple[str, ...]
    removed: tuple[str, ...]
    moved: dict[str, tuple[int, int]]
    lines: dict[str, tuple[int, int]]

    @property
    def is_empty(self) -> bool:
        """Whether both answers have the same skills, order and lines."""
        return not (self.added or self.removed or self.moved or self.lines)


def compare_bundles(before: Bundle, after: Bundle) -> BundleChange:
    """Return the difference of two bundles."""
    old = {skill.skill_id: place for place, skill in enumerate(before.skills, 1)}
    new = {skill.skill_id: place for place, skill in enumerate(after.skills, 1)}
    lines = {}
    first = {skill.skill_id: list_lines(skill) for skill in before.skills}
    for skill in after.skills:
        if skill.skill_id in first:
            sent = list_lines(skill)
            more, fewer = len(sent - first[skill.skill_id]), len(first[skill.skill_id] - sent)
            if more or fewer:
                lines[skill.skill_id] = (more, fewer)
    return BundleChange(
        before=before.query_id,
        added=tuple(one for one in new if one not in old),
        removed=tuple(one for one in old if one not in new),
        moved={one: (old[one], new[one]) for one in new if one in old and old[one] != new[one]},
        lines=lines,
    )


def list_lines(skill: BundleSkill) -> set[int]:
    """Return the numbers of the lines of SKILL.md that a bundle sends."""
    return {
        number
        for passage in skill.passages
        for number in range(passage.first_line, passage.last_line + 1)
    }
