"""Whether a library is evidently about a task: the floor under which the answer is NO_SKILL_HIT."""

from __future__ import annotations

import math

TYPICAL_COSINE = 0.45
"""Nearness to count where the encoder knows nothing of the task: about what tasks that have their
skill reach, so that words alone meet the same floor."""


def evidence_strength(evidence: float, best_cosine: float | None, skills: int) -> float:
    """How much speaks for the best candidates, comparable between tasks and libraries.

    evidence: the best BM25F of the task, blended as it is scored, over the root of the task's
    mass. nearness: the best cosine of the task with a candidate, None where dense scores say
    nothing. skills: size of the library.

    Words and meaning multiply, evidence x e^nearness: each doubts the other. Evidence grows with
    the library because its terms weigh more there; over libraries of 189 to 12,000 skills the
    strength of tasks that have their skill grew with the root of the logarithm of the size.
    """
    near = TYPICAL_COSINE if best_cosine is None else best_cosine
    return evidence * math.exp(near) / math.sqrt(math.log1p(max(skills, 1)))


def evidence_floor(long_task_weight: float, short_floor: float, long_floor: float) -> float:
    """The least strength for a task that is `long` (0 a short query, 1 a long task): a long task
    shares some words with any large library. Geometric between the two."""
    return math.exp(
        (1.0 - long_task_weight) * math.log(short_floor) + long_task_weight * math.log(long_floor)
    )


def has_evidence(
    evidence: float,
    best_cosine: float | None,
    skills: int,
    long_task_weight: float,
    floors: tuple[float, float],
    near: float,
) -> bool:
    """Whether the strength reaches its floor (short, long). Where no word of the task occurs in
    the library, words say nothing, and a cosine of at least `near` decides."""
    if evidence <= 0:
        return best_cosine is not None and best_cosine >= near
    return evidence_strength(evidence, best_cosine, skills) >= evidence_floor(
        long_task_weight, *floors
    )
