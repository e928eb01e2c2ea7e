"""Metrics of ranking, passage selection, roles and probabilities, as pure functions.

Ranking: SkillRouter, appendix A. Passages: SkillPager §4.2, with labelled lines instead of a judge.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from skills.record import Role

CUTOFFS = (5, 10, 20, 50)

_TOKEN = re.compile(r"\w+|[^\w\s]")

Ranges = Sequence[Sequence[int]]


def credit_also(needed: Iterable[str], also: Collection[str], ranked: Sequence[str]) -> list[str]:
    """Return a ranking to score: a skill of `also` counts in place of a needed skill behind it.

    The two swap places, so that no other rank changes. needed, also: right skills of the task.
    """
    ids = list(ranked)
    place = {skill_id: at for at, skill_id in enumerate(ids)}
    behind = sorted(set(needed), key=lambda one: (place.get(one, len(ids)), one))
    for at, skill_id in enumerate(ranked):
        if skill_id in behind:
            behind.remove(skill_id)
        elif skill_id in also and behind:
            last = behind.pop()
            ids[at] = last
            if last in place:
                ids[place[last]] = skill_id
    return ids


def routing_metrics(
    needed: Mapping[str, Iterable[str]], ranked: Mapping[str, Sequence[str]]
) -> dict[str, float]:
    """Return means over tasks: Hit@1, MRR@10, nDCG@10, R@k and FC@10 (all
    needed skills in the top 10).

    needed, ranked: skill ids by task; ranked ids best first. A task missing in `ranked` scores 0.
    """
    rows = list(routing_metrics_by_task(needed, ranked).values())
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]} if rows else {}


def routing_metrics_by_task(
    needed: Mapping[str, Iterable[str]], ranked: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, float]]:
    """Return the metrics of `routing_metrics` for each task."""
    return {
        task: _routing_row(set(wanted), list(dict.fromkeys(ranked.get(task, ()))))
        for task, wanted in needed.items()
    }


def _routing_row(needed: set[str], ranked: list[str]) -> dict[str, float]:
    gains = [float(skill in needed) for skill in ranked]
    first = next((place for place, gain in enumerate(gains[:10]) if gain), None)
    ideal = sum(1 / math.log2(place + 2) for place in range(min(len(needed), 10)))
    found = sum(gain / math.log2(place + 2) for place, gain in enumerate(gains[:10]))
    row = {
        "Hit@1": gains[0] if gains else 0.0,
        "MRR@10": 0.0 if first is None else 1 / (first + 1),
        "nDCG@10": found / ideal,
        "FC@10": float(needed <= set(ranked[:10])),
    }
    return row | {f"R@{cut}": len(needed & set(ranked[:cut])) / len(needed) for cut in CUTOFFS}


def line_set(ranges: Ranges) -> set[int]:
    """Return the line numbers in some ranges, which are 1-based and inclusive."""
    return {line for first, last in ranges for line in range(first, last + 1)}


def passage_metrics(rows: Sequence[tuple[Ranges, Ranges, Sequence[str], int]]) -> dict[str, float]:
    """Return sufficiency and token reduction over rows of (required, selected, lines, body_line).

    A query is sufficient if every required line that is not blank is selected. Token reduction
    counts words and punctuation marks of the body, summed over all queries (SkillPager table 4).
    """
    sufficient = recalled = 0.0
    full = kept = 0
    for required, selected, lines, body_line in rows:
        inside = line_set(selected)
        wanted = {line for line in line_set(required) if lines[line - 1].strip()}
        recalled += len(wanted & inside) / len(wanted) if wanted else 1.0
        sufficient += wanted <= inside
        for line in range(body_line, len(lines) + 1):
            tokens = len(_TOKEN.findall(lines[line - 1]))
            full += tokens
            kept += tokens if line in inside else 0
    count = len(rows)
    return {
        "sufficient": sufficient / count,
        "required_recall": recalled / count,
        "token_reduction": 1 - kept / full if full else 0.0,
    }


def role_metrics(
    gold: Mapping[str, Sequence[tuple[int, int, str]]],
    given: Mapping[str, Sequence[tuple[int, int, str]]],
) -> dict[str, float]:
    """Return accuracy over lines and macro-F1 over the six roles, 0 for a role that does not occur;
    other labels are not scored.

    gold, given: (first line, last line, role) by skill id.
    """
    roles = [role.value for role in Role]
    # The last row and column are for lines without a role.
    confusion = np.zeros((len(roles) + 1, len(roles) + 1))
    for skill_id, ranges in gold.items():
        guesses = {n: role for a, b, role in given.get(skill_id, ()) for n in range(a, b + 1)}
        for first, last, role in ranges:
            if role in roles:
                for line in range(first, last + 1):
                    guess = guesses.get(line)
                    column = roles.index(guess) if guess in roles else len(roles)
                    confusion[roles.index(role), column] += 1
    if not confusion.any():
        return {}
    accuracy, macro_f1 = accuracy_and_macro_f1(confusion)
    return {"accuracy": accuracy, "macro_f1": macro_f1, "lines": float(confusion.sum())}


def accuracy_and_macro_f1(confusion: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return accuracy over lines and macro-F1 over the six roles.

    confusion: lines by labelled and predicted role; rows and columns after the six are no roles.
    """
    right = np.diagonal(confusion)
    sums = confusion.sum(axis=0) + confusion.sum(axis=1)
    f1 = 2 * right / np.maximum(sums, 1e-9)
    return float(right.sum() / max(1.0, confusion.sum())), float(f1.sum() / len(Role))


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Predictions of about the same value: their mean, the share that came true, their number."""

    predicted: float
    observed: float
    count: int


def reliability_bins(
    predicted: Sequence[float], came_true: Sequence[bool], bins: int = 10
) -> list[ReliabilityBin]:
    """Return bins of equal width between 0 and 1, for a reliability plot; empty ones are left
    out."""
    values = np.asarray(predicted, dtype=np.float64)
    truth = np.asarray(came_true, dtype=np.float64)
    place = np.minimum((values * bins).astype(np.int64), bins - 1)
    return [
        ReliabilityBin(float(values[mine].mean()), float(truth[mine].mean()), int(mine.sum()))
        for mine in (place == number for number in range(bins))
        if mine.any()
    ]


def calibration_error(bins: Sequence[ReliabilityBin]) -> float:
    """Return the expected calibration error: mean |predicted - observed| over the predictions
    (Naeini et al., AAAI 2015)."""
    total = sum(one.count for one in bins)
    gaps = (one.count * abs(one.predicted - one.observed) for one in bins)
    return sum(gaps) / total if total else 0.0
