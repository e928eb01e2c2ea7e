"""What `explain` adds to a bundle: what each stage gave each candidate, and why it is in or out."""

from __future__ import annotations

from typing import Any

from skills.bundle import Bundle
from tasks.choice import Choice
from tasks.retrieval import Ranking

_EXPLAINED = 30


def explanation(ranking: Ranking, choice: Choice, bundle: Bundle) -> dict[str, Any]:
    """The best candidates, each with the parts of its score and a verdict.

    The parts of a score add up to it, unless a cross-encoder has put the candidates in another
    order. columns: the names of the parts, in the order of the stages.
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
    columns = list(dict.fromkeys(name for row in rows for name in row["scores"]))
    return {
        "evidence": round(ranking.evidence, 4),
        "nearness": None if ranking.nearness is None else round(ranking.nearness, 4),
        "stages": bundle.timings_ms,
        "columns": columns,
        "candidates": rows,
    }


def _verdicts(ranking: Ranking, choice: Choice, bundle: Bundle) -> list[str]:
    """`in: …` or `out: …` for each of the first candidates."""
    sent = {skill.skill_id: skill.why for skill in bundle.skills}
    reasons = dict(choice.left_out) | {left.skill_id: left.reason for left in bundle.left_out}
    verdicts = []
    for hit in ranking.hits[:_EXPLAINED]:
        skill_id = hit.key.skill_id
        if skill_id in sent:
            verdicts.append(f"in: {'; '.join(sent[skill_id]) or 'ranks among the first'}")
        elif skill_id in reasons:
            verdicts.append(f"out: {reasons[skill_id]}")
        elif bundle.status == "NO_SKILL_HIT":
            verdicts.append("out: below the floor of evidence")
        elif hit.score < choice.least:
            verdicts.append("out: scores far below the best")
        else:
            verdicts.append("out: ranks behind those chosen")
    return verdicts
