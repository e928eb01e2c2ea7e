"""Choose the floors of NO_SKILL_HIT by leaving a tenth of the tasks out at a time.

usage: choose_floor.py HOME,TASKS[,SOURCE] ...

HOME     a library, searchable
TASKS    one object a line: task_id, instruction, gt_skill_ids (or query_id, query, skill_id)
SOURCE   where the tasks' skills are not: negatives are asked of it alone. Without it the needed
         skills are taken out of the candidates.

Prints for each triple the share of tasks with their skill that the floors chosen on the others
refuse (false), and of tasks without it that they refuse (found); then the floors over all, and the
curve of found against false as both floors are moved together.
"""

from __future__ import annotations

import json
import sys
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from config.load_settings import load_settings
from search.scoring.evidence_floor import evidence_strength
from search.scoring.weights import ScoringWeights
from skills.events import QueryAsked, QueryFilters
from tasks.query.context import QueryContext
from tasks.query.pipeline import rank_candidates
from tasks.services import Services
from workers.backend.embedded import EmbeddedBackend

FOLDS = 10
REFUSED = 0.02
"""The share of tasks with their skill that may lie below the floor when it is chosen."""
FACTORS = (0.8, 0.9, 1.0, 1.1, 1.25, 1.5)


class Case(NamedTuple):
    """One task asked of one library, with or without its skill."""

    group: str
    fold: int
    positive: bool
    long_task_weight: float
    strength: float


def ask(services: Services, task: str, source: str, hidden: set[str]) -> tuple[float, float]:
    """(how long the task is, the strength of what is found), some skills hidden."""
    filters = QueryFilters(source=(source,) if source else ())
    request = QueryAsked(task=task, filters=filters)
    ranking = rank_candidates(QueryContext.create(services, request, apply_policy=False))
    hits = [hit for hit in ranking.hits if hit.key.skill_id not in hidden]
    spread = ScoringWeights().bm25f_spread
    evidence = max((hit.parts.get("bm25f", 0.0) for hit in hits), default=0.0) * spread
    best_cosine = None
    if ranking.vector is not None:
        pairs = services.index.get_skill_vectors([hit.key for hit in hits])
        known = [pair for pair in pairs.values() if pair.any()]
        best_cosine = max((float((pair @ ranking.vector).max()) for pair in known), default=None)
    size = len(services.library.refresh().pointers)
    return ranking.long_task_weight, evidence_strength(evidence, best_cosine, size)


def load(triple: str) -> list[Case]:
    """Each task with its skill and without it."""
    home, tasks, source = (*triple.split(","), "")[:3]
    backend = EmbeddedBackend(load_settings(Path(home)), writable=False)
    cases = []
    for row in map(json.loads, Path(tasks).read_text(encoding="utf-8").splitlines()):
        name = row.get("task_id") or row["query_id"]
        text = row.get("instruction") or row["query"]
        needed = set(row.get("gt_skill_ids") or [row["skill_id"]])
        fold = zlib.crc32(min(needed).encode()) % FOLDS
        asked = ((True, "", set()), (False, source, set() if source else needed))
        for positive, elsewhere, hidden in asked:
            long, found = ask(backend.services, text, elsewhere, hidden)
            cases.append(Case(triple, fold, positive, long, max(found, 1e-6)))
        print(f"asked {name}", file=sys.stderr)
    backend.stop()
    return cases


def fit(cases: list[Case]) -> npt.NDArray[np.float64]:
    """Logarithms of the short floor and of the step to the long one: least squares over the tasks
    with their skill, every triple counting alike, lowered to the REFUSED quantile."""
    positive = [case for case in cases if case.positive]
    sizes = {
        name: sum(case.group == name for case in positive) for name in {c.group for c in cases}
    }
    weights = np.sqrt([1 / sizes[case.group] for case in positive])
    design = np.array([(1.0, case.long_task_weight) for case in positive])
    seen = np.log([case.strength for case in positive])
    line = np.linalg.lstsq(design * weights[:, None], seen * weights, rcond=None)[0]
    line[0] += np.quantile(seen - design @ line, REFUSED)
    return np.asarray(line, dtype=np.float64)


def refused(case: Case, line: npt.NDArray[np.float64], factor: float = 1.0) -> bool:
    """Whether the task's strength is below the floor."""
    return bool(np.log(case.strength) < line[0] + line[1] * case.long_task_weight + np.log(factor))


def shares(cases: list[Case], verdicts: list[bool]) -> str:
    """False and found, as text."""
    false = [v for case, v in zip(cases, verdicts, strict=True) if case.positive]
    found = [v for case, v in zip(cases, verdicts, strict=True) if not case.positive]
    return f"false {np.mean(false):.3f} found {np.mean(found):.3f}"


def main(argv: list[str]) -> int:
    """Ask, choose, print."""
    if len(argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    cases = [case for triple in argv[1:] for case in load(triple)]
    lines = [fit([case for case in cases if case.fold != fold]) for fold in range(FOLDS)]
    whole = fit(cases)
    for triple in argv[1:]:
        own = [case for case in cases if case.group == triple]
        print(f"{triple}\n  left out: {shares(own, [refused(c, lines[c.fold]) for c in own])}")
        for factor in FACTORS:
            print(f"  floors x {factor}: {shares(own, [refused(c, whole, factor) for c in own])}")
    print(f"floor {np.exp(whole[0]):.2f} floor_long {np.exp(whole.sum()):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
