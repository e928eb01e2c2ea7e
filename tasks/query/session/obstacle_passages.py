"""Answers to an obstacle: passages on similar errors in skills in use come first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from search.text.query_understanding import understand
from skills.passages import DEFAULT_WEIGHTS, PassageInput, PassageQuery, score_passages
from skills.record import Role
from tasks.query.context import QueryContext
from tasks.query.select_passages import SkillPassages, make_passage_query

_MIN_MATCH = 0.5
"""Minimum share of the obstacle's words in a passage on errors, relative to the skill's best."""


def put_error_handling_first(
    context: QueryContext, skills: Sequence[SkillPassages]
) -> list[SkillPassages]:
    """Return first the skills in use with passages about the obstacle, then the other skills.

    skills: with the lines that were sent of them. Passages on errors that match the obstacle come
    before other passages of their skill, and get budget before the passages of any other skill. A
    skill that was chosen only for being in use is left out if it has no such passage.
    """
    query = make_passage_query(understand(context.obstacle), None)
    in_use = set(context.session.in_use)
    first, others = [], []
    for skill in skills:
        matched = []
        if skill.chosen.skill_id in in_use:
            matched = find_error_handling(skill, query)
        if matched:
            first.append(_begin_with(skill, matched))
        elif skill.chosen.score > 0 or skill.chosen.skill_id not in in_use:
            others.append(skill)
    return first + others


def _begin_with(skill: SkillPassages, matched: Sequence[int]) -> SkillPassages:
    """Return the skill with these passages first; alone, if it was chosen only for being in use."""
    planned, first = skill.passages if skill.chosen.score else (), set(matched)
    rest = [index for index in planned if index not in first]
    enough = len(matched) + sum(index not in first for index in planned[: skill.enough])
    return replace(skill, passages=(*matched, *rest), enough=enough, first=True)


def find_error_handling(skill: SkillPassages, query: PassageQuery) -> list[int]:
    """Return the indexes of the passages on errors that match an obstacle, best first.

    query: the words of the obstacle. Words count by how rare they are in the skill.
    """
    parsed, terms = skill.revision.parsed, skill.revision.passage_terms
    if not parsed.passages:
        return []
    skill_input = PassageInput(parsed, terms.offsets, terms.terms, terms.counts)
    shares = score_passages(query, skill_input, DEFAULT_WEIGHTS).passage_terms
    min_share = _MIN_MATCH * float(shares.max())
    matched = [
        passage.index
        for passage in parsed.passages
        if passage.role is Role.ERROR_HANDLING
        and shares[passage.index] > 0
        and shares[passage.index] >= min_share
    ]
    return sorted(matched, key=lambda index: -float(shares[index]))
