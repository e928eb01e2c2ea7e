"""Recall: evidence about skills from past tasks near this one, for the exact score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from config.errors import TransientError
from search.protocol import Filters
from search.scoring.memory_evidence import SkillEvidence
from skills.record import RevisionKey, get_source_id
from tasks.query.context import QueryContext
from tasks.query.ranking import Candidates, RankedSkill, Ranking, TaskQuery

_REASON_EFFECT = 0.5
"""Minimum effect on the score at which the memory is named as a reason; smaller differences decide
little."""


def recall(context: QueryContext, query: TaskQuery) -> TaskQuery:
    """Return the query with the evidence of near past tasks.

    If the store of outcomes does not answer, there is no evidence, and the bundle says so; raises
    TransientError if the query must not degrade.
    """
    try:
        found = context.services.past_tasks.recall(
            query.understanding, query.vector, context.visible
        )
    except TransientError as error:
        if not context.can_degrade:
            raise
        reason = "ranked without past tasks: the store of outcomes did not answer"
        context.degradations.add(reason, error)
        return query
    return replace(query, remembered=found)


def add_remembered(context: QueryContext, candidates: Candidates) -> Candidates:
    """Return the candidates with skills that helped near tasks and that search did not find.

    Only filters by source can be compared here; with other filters, no skill is added.
    """
    query, filters = candidates.query, context.filters
    if filters != Filters(source=filters.source):
        return candidates
    known = {key.skill_id for key in candidates.keys}
    pointers = query.snapshot.pointers
    added = [
        RevisionKey(skill_id, pointers[skill_id])
        for skill_id, evidence in query.remembered.items()
        if evidence.effect > 0
        and skill_id not in known
        and skill_id in pointers
        and (not filters.source or get_source_id(skill_id) in filters.source)
    ]
    return replace(candidates, keys=[*candidates.keys, *added]) if added else candidates


def add_reasons(ranking: Ranking) -> Ranking:
    """Return the ranking with the memory among the reasons of the hits that it moves."""
    if not ranking.remembered:
        return ranking
    return replace(ranking, hits=tuple(_with_reason(hit, ranking) for hit in ranking.hits))


def _with_reason(hit: RankedSkill, ranking: Ranking) -> RankedSkill:
    evidence = ranking.remembered.get(hit.key.skill_id)
    if evidence is None or abs(evidence.effect) < _REASON_EFFECT:
        return hit
    return replace(hit, why=(*hit.why, describe(evidence)))


def describe(evidence: SkillEvidence) -> str:
    """Return the evidence in words, as a reason."""
    if evidence.effect > 0:
        return f"helped with {_count(evidence.helped_tasks)}"
    return f"rejected for {_count(evidence.rejected_tasks)}"


def _count(tasks: int) -> str:
    return f"{tasks} similar task{'' if tasks == 1 else 's'}"


def nudge(ranking: Ranking) -> Ranking:
    """Swap neighbours if owners that do not count alone would put them in the other order.

    Each skill takes part in one swap at most, so that such owners move none by more than one place.
    Owners of a format that the task names stay in place.
    """
    nudges = {name: one.nudge for name, one in ranking.remembered.items() if one.nudge}
    if not nudges:
        return ranking
    hits = list(ranking.hits)
    place = 0
    while place + 1 < len(hits):
        upper, lower = hits[place], hits[place + 1]
        gain = nudges.get(lower.key.skill_id, 0.0) - nudges.get(upper.key.skill_id, 0.0)
        if gain <= 0 or upper.named_format or lower.named_format:
            place += 1
        elif lower.score + gain > upper.score:
            hits[place], hits[place + 1] = _swap(upper, lower, ranking.remembered)
            place += 2
        else:
            place += 1
    return replace(ranking, hits=tuple(hits))


def _swap(
    upper: RankedSkill, lower: RankedSkill, remembered: Mapping[str, SkillEvidence]
) -> tuple[RankedSkill, RankedSkill]:
    """Return both skills in the other order; the first gets the higher of their scores."""
    first, second = max(upper.score, lower.score), min(upper.score, lower.score)
    return (
        _with_nudge(lower, first, remembered.get(lower.key.skill_id), is_up=True),
        _with_nudge(upper, second, remembered.get(upper.key.skill_id), is_up=False),
    )


def _with_nudge(
    hit: RankedSkill, score: float, evidence: SkillEvidence | None, *, is_up: bool
) -> RankedSkill:
    why = hit.why
    if evidence is not None and evidence.nudge and (evidence.nudge > 0) == is_up:
        what = "helped with" if is_up else "rejected for"
        count = evidence.helped_tasks if is_up else evidence.rejected_tasks
        why = (*why, f"{what} {_count(count)}, by too few owners to move it further")
    return replace(hit, score=score, parts={**hit.parts, "nudge": score - hit.score}, why=why)
