"""What `explain` adds to a bundle: what each stage gave each candidate, and why it is in or out."""

from __future__ import annotations

from typing import Any

from config.settings import ChoiceSettings
from search.scoring.evidence_floor import evidence_floor, evidence_strength
from skills.bundle.model import Bundle
from tasks.query.choose import SkillChoice
from tasks.query.retrieve import Ranking

_EXPLAINED = 30


def explain_ranking(
    ranking: Ranking, choice: SkillChoice, bundle: Bundle, settings: ChoiceSettings
) -> dict[str, Any]:
    """The best candidates, each with the parts of its score, which add up to it, and a verdict.

    strength, floor: what speaks for the best of them, and the least for which a bundle is made.
    withheld: those that the policy keeps back, which are no candidates.
    """
    rows = [
        {
            "skill_id": hit.key.skill_id,
            "scores": {"score": round(hit.score, 4)}
            | {name: round(value, 4) for name, value in hit.parts.items()},
            "verdict": verdict,
        }
        for hit, verdict in zip(
            ranking.hits[:_EXPLAINED], _verdicts(ranking, choice, bundle), strict=False
        )
    ]
    return {
        "strength": round(
            evidence_strength(ranking.evidence, ranking.best_cosine, ranking.library_size), 4
        ),
        "floor": round(
            evidence_floor(ranking.long_task_weight, settings.floor, settings.floor_long), 4
        ),
        "stages": bundle.timings_ms,
        "candidates": rows,
        "withheld": [one.model_dump() for one in bundle.withheld.skills],
    }


def _verdicts(ranking: Ranking, choice: SkillChoice, bundle: Bundle) -> list[str]:
    """`in: …` or `out: …` for each of the first candidates."""
    sent = {skill.skill_id: skill.why for skill in bundle.skills}
    reasons = dict(choice.left_out) | {left.skill_id: left.reason for left in bundle.left_out}
    verdicts = []
    for hit in ranking.hits[:_EXPLAINED]:
        skill_id = hit.key.skill_id
        if skill_id in sent:
            verdicts.append(f"in: {'; '.join(sent[skill_id])}")
        elif skill_id in reasons:
            verdicts.append(f"out: {reasons[skill_id]}")
        elif bundle.status == "NO_SKILL_HIT":
            verdicts.append("out: below the floor of evidence")
        elif hit.score < choice.min_score:
            verdicts.append("out: scores far below the best")
        else:
            verdicts.append("out: ranks behind those chosen")
    return verdicts
