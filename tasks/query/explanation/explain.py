"""Explain: effect of each stage on each candidate, and why it is in the bundle or not."""

from __future__ import annotations

from typing import Any

from skills.bundle.model import Bundle
from tasks.query.choose import is_evident
from tasks.query.context import QueryContext
from tasks.query.memory.explain_memory import explain_memory
from tasks.query.read_chosen import ChosenRevisions

_MAX_CANDIDATES = 30


def explain(context: QueryContext, chosen: ChosenRevisions, bundle: Bundle) -> dict[str, Any]:
    """Return the `explain` field of a bundle.

    probability, least_probability: that the library has a skill for the task, and the minimum for a
    bundle with skills. candidates: the best ones with a verdict, their probabilities, the parts of
    their scores, which add up to `score`, and the evidence of past tasks (`memory`). withheld:
    skills that the policy withholds, which are not candidates. diffusion: the skills that mass
    flowed from, with their shares, and the epoch of the links; only if it ran. language_model: by
    stage, the model's answer and its cost; only for stages that asked it.
    """
    ranking, settings = chosen.ranking, context.services.settings.choice
    memory = explain_memory(context, ranking, ranking.hits[:_MAX_CANDIDATES])
    verdicts = [verdict for _, verdict in list_verdicts(context, chosen, bundle, _MAX_CANDIDATES)]
    rows = [
        {
            "skill_id": hit.key.skill_id,
            "scores": {"score": round(hit.score, 4)}
            | {name: round(value, 4) for name, value in hit.parts.items()},
            "probability": None if hit.probability is None else round(hit.probability, 4),
            "verdict": verdict,
        }
        | ({"memory": memory[hit.key.skill_id]} if hit.key.skill_id in memory else {})
        for hit, verdict in zip(ranking.hits, verdicts, strict=False)
    ]
    known: dict[str, Any] = {}
    if (start := ranking.diffusion) is not None:
        seeds = {name: round(share, 6) for name, share in start.seeds.items()}
        known["diffusion"] = {"seeds": seeds, "epoch": start.epoch}
    if context.model_calls.reports:
        known["language_model"] = context.model_calls.reports
    return {
        "probability": None if ranking.probability is None else round(ranking.probability, 4),
        "least_probability": settings.least_probability,
        "stages": bundle.timings_ms,
        "candidates": rows,
        "withheld": [one.model_dump() for one in bundle.withheld.skills],
    } | known


def list_verdicts(
    context: QueryContext, chosen: ChosenRevisions, bundle: Bundle, limit: int | None = None
) -> list[tuple[str, str]]:
    """Return skill and `in: …` or `out: …` of each of the first `limit` candidates, by default
    all."""
    settings, decided = context.services.settings.choice, explain_choice(chosen, bundle)
    has_evidence = is_evident(context, chosen.ranking)
    verdicts = []
    for hit in chosen.ranking.hits[:limit]:
        skill_id = hit.key.skill_id
        if skill_id in decided:
            verdict = decided[skill_id]
        elif bundle.status == "NO_SKILL_HIT" and not has_evidence:
            verdict = "out: the library is unlikely to have a skill for the task"
        elif hit.probability is not None and hit.probability < settings.least_further:
            verdict = "out: unlikely to be right for the task"
        elif hit.score < chosen.choice.min_score:
            verdict = "out: scores far below the best"
        else:
            verdict = "out: ranks below the chosen skills"
        verdicts.append((skill_id, verdict))
    return verdicts


def explain_choice(chosen: ChosenRevisions, bundle: Bundle) -> dict[str, str]:
    """Return `in: …` or `out: …` for each skill that was chosen, or left out with a reason.

    These are not all candidates: a dependency need not be one.
    """
    verdicts: dict[str, str] = {}
    if bundle.status == "NO_SKILL_HIT":
        verdicts |= dict.fromkeys(chosen.choice.chosen_ids(), f"out: {bundle.reason}")
    elif bundle.did_not_fit is not None:
        unfit = "out: did not fit into the budget"
        verdicts |= dict.fromkeys(chosen.choice.chosen_ids(), unfit)
    verdicts |= {left.skill_id: f"out: {left.reason}" for left in chosen.choice.left_out}
    verdicts |= {
        left.skill_id: f"out: {left.reason}"
        for left in bundle.left_out
        if left.cause != "improbable"  # `list_verdicts` states why
    }
    sent_earlier = "in: sent earlier in this session"
    verdicts |= {one.skill_id: sent_earlier for one in bundle.already_sent}
    return verdicts | {one.skill_id: f"in: {'; '.join(one.why)}" for one in bundle.skills}
