"""Explain: the past tasks that moved a candidate, and how much."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from search.scoring.memory_evidence import Contribution, SkillEvidence
from tasks.query.context import QueryContext
from tasks.query.ranking import RankedSkill, Ranking

_NAMED_TASKS = 5
_TASK_CHARACTERS = 200


def explain_memory(
    context: QueryContext, ranking: Ranking, hits: Sequence[RankedSkill]
) -> dict[str, dict[str, Any]]:
    """Return the evidence of past tasks about each of these hits, by skill_id; hits without
    evidence are left out.

    effect: amount that they add to the score. tasks: the nearest tasks whose text the asker may
    see, with their weights by nearness and day. other_tasks: number of other tasks that counted.
    """
    found = [
        ranking.remembered[hit.key.skill_id]
        for hit in hits
        if hit.key.skill_id in ranking.remembered
    ]
    ids = sorted({one.task_id for evidence in found for one in evidence.contributions})
    texts = {
        query_id: answer.task[:_TASK_CHARACTERS]
        for query_id, answer in context.services.outcomes.get_answers(ids).items()
        if context.owner in ("", answer.owner)
    }
    return {evidence.skill_id: _explain(evidence, texts) for evidence in found}


def _explain(evidence: SkillEvidence, texts: dict[str, str]) -> dict[str, Any]:
    by_task: dict[str, list[Contribution]] = {}
    for one in evidence.contributions:
        by_task.setdefault(one.task_id, []).append(one)
    named = [task_id for task_id in by_task if task_id in texts][:_NAMED_TASKS]
    return {
        "effect": round(evidence.effect, 4),
        "helped_tasks": evidence.helped_tasks,
        "rejected_tasks": evidence.rejected_tasks,
        "tasks": [
            {
                "query_id": task_id,
                "task": texts[task_id],
                "nearness": round(by_task[task_id][0].nearness, 4),
                "helped": round(sum(one.helped for one in by_task[task_id]), 4),
                "rejected": round(sum(one.rejected for one in by_task[task_id]), 4),
            }
            for task_id in named
        ],
        "other_tasks": len(by_task) - len(named),
    }
