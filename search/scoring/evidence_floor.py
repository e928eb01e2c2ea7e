"""Evidence that a library has a skill for a task; below the floor the answer is NO_SKILL_HIT."""

from __future__ import annotations

import math

TYPICAL_COSINE = 0.45
"""Cosine assumed when the encoder does not know the language of the task.

About the best cosine of tasks whose skill is in the library, so that the same floors apply to
lexical evidence alone.
"""


def evidence_strength(evidence: float, best_cosine: float | None, skills: int) -> float:
    """Return the strength of the evidence, comparable between tasks and libraries.

    evidence: the best `ScoredCandidates.evidence` of the task. best_cosine: the best cosine of
    the task with a candidate, None without usable vectors. skills: size of the library.

    The strength is evidence x e^cosine / sqrt(ln(1 + skills)): a match needs both words and
    meaning. The divisor is empirical: over libraries of 189 to 12,000 skills, the evidence for
    tasks whose skill is in the library grew so, since idf grows with the library.
    """
    near = TYPICAL_COSINE if best_cosine is None else best_cosine
    return evidence * math.exp(near) / math.sqrt(math.log1p(max(skills, 1)))


def evidence_floor(long_task_weight: float, short_floor: float, long_floor: float) -> float:
    """Return the minimum strength for a task of this weight (0 a short query, 1 a long task).

    Interpolates geometrically. Long tasks have a higher floor because they share some words with
    any large library.
    """
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
    """Whether the strength reaches the floor.

    floors: of short queries and of long tasks. near: the minimum cosine for a task of which no
    word occurs in the library, where cosines alone decide.
    """
    if evidence <= 0:
        return best_cosine is not None and best_cosine >= near
    return evidence_strength(evidence, best_cosine, skills) >= evidence_floor(
        long_task_weight, *floors
    )
