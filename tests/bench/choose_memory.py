"""Choose the constants of the memory of past tasks, leaving out whole repositories.

usage: python -m tests.bench.choose_memory HOME PROMPTS.jsonl[,…] [--cases FILE]
           [--repositories INDEX.jsonl] [--choices N] [--halves N]

PROMPTS        one object a line: task_id, instruction, gt_skill_ids
--cases        keeps the ranked prompts, so that a change takes seconds
--repositories objects with id and repo; without, the id names the repository
--choices      combinations of constants that are tried besides those in force, at random

Prompts are ranked once without memory. Then half of the prompts of each skill are remembered, with
outcomes from their labels, and the others are ranked by their exact scores and the effects. Prints
the change of Hit@1: of the others (`seen`); with 20 % and 40 % of the outcomes flipped; and of all
prompts of one in five skills, none of whose prompts are remembered (`new`).
"""

from __future__ import annotations

import argparse
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from config.load_settings import load_settings
from search.protocol import Vector
from search.scoring.cosine_scale import DEFAULT_TASK_SCALE
from search.scoring.memory_evidence import MemoryWeights, OwnerRules
from search.scoring.past_task_rows import TaskWords, to_int8, weigh_words
from search.scoring.task_memory import PastTask, TaskMemory
from skills.events import QueryAsked
from skills.outcomes.labels import SkillLabel
from tasks.query.context import QueryContext
from tasks.query.pipeline import rank_candidates
from tasks.services import Services
from tests.bench.probability_cases import find_repository, read_repositories
from workers.backend.embedded import EmbeddedBackend
from workers.evaluation.predictions import read_jsonl

BUNDLE, KEPT, FOLDS, NEW = 5, 400, 5, 0.2
LEAST_NEW = -0.01
"""What prompts of skills without outcomes may lose; more counts four times."""
GRID: Mapping[str, Sequence[float]] = {
    "nearest": (0.5, 1.0, 1.5, 2.0),
    "same": (4.5, 5.0, 6.0, 7.0),
    "sharpness": (1.0, 1.5, 2.0),
    "prior": (0.1, 0.2, 0.3, 0.4),
    "strength": (1.0, 2.0, 3.0),
    "rejected": (0.15, 0.3, 0.5, 1.0),
    "height": (6.0, 8.0, 9.0, 10.0, 12.0),
}
MEASURES = (("seen", 0.0), ("20 % flipped", 0.2), ("40 % flipped", 0.4))
WORTH = {"seen": 1.0, "20 % flipped": 1.0, "40 % flipped": 0.5}


@dataclass(frozen=True)
class Prompt:
    """A prompt, ranked without memory. scores: of its candidates by skill_id."""

    task_id: str
    right: tuple[str, ...]
    repository: str
    words: TaskWords
    vector: Vector | None
    scores: Mapping[str, float]

    @property
    def first(self) -> list[str]:
        """The best by their scores."""
        return sorted(self.scores, key=lambda name: (-self.scores[name], name))[:BUNDLE]

    def is_hit(self, effects: Mapping[str, float]) -> bool:
        """Whether a right skill comes first; those that are no candidates start with the least."""
        least = min(self.scores.values(), default=0.0)
        moved = {name: self.scores.get(name, least) + effects[name] for name in effects}
        ranked = sorted({**self.scores, **moved}.items(), key=lambda pair: (-pair[1], pair[0]))
        return bool(ranked) and ranked[0][0] in self.right


def rank(
    services: Services, files: Sequence[Path], repositories: Mapping[str, str]
) -> Iterator[Prompt]:
    """All prompts that have skills."""
    for row in (row for one in files for row in read_jsonl(one, ("task_id", "instruction"))):
        if not row.get("gt_skill_ids"):
            continue
        request = QueryAsked(task=row["instruction"], without=("memory",))
        ranking = rank_candidates(QueryContext.create(services, request, apply_policy=False))
        first = row["gt_skill_ids"][0]
        yield Prompt(
            row["task_id"],
            tuple(row["gt_skill_ids"]),
            repositories.get(first) or find_repository(first),
            weigh_words(ranking.understanding),
            ranking.vector,
            {hit.key.skill_id: hit.score for hit in ranking.hits[:KEPT]},
        )


def remember(prompts: Sequence[Prompt], flipped: float, rng: np.random.Generator) -> list[PastTask]:
    """Past tasks with labels of the right skills and of the others that came first."""
    tasks = []
    for prompt in prompts:
        labels = []
        for name in sorted({*prompt.right, *prompt.first}):
            helped = float((name in prompt.right) != (rng.random() < flipped))
            labels.append(SkillLabel(name, "", 0, helped, 1.0 - helped))
        content = prompt.words if prompt.vector is None else to_int8(prompt.vector)
        tasks.append(PastTask(prompt.task_id, content, tuple(labels)))
    return tasks


def split(
    prompts: Sequence[Prompt], seed: int, left_out: float
) -> tuple[list[Prompt], list[Prompt]]:
    """Half of the prompts of each skill, and the rest; or, with `left_out`, the prompts of so many
    skills as the rest."""
    rng = np.random.default_rng(seed)
    by_skill: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        by_skill.setdefault(prompt.right[0], []).append(prompt)
    replayed: list[Prompt] = []
    asked: list[Prompt] = []
    for name in sorted(by_skill):
        mine = [by_skill[name][place] for place in rng.permutation(len(by_skill[name])).tolist()]
        if rng.random() < left_out:
            asked += mine
            continue
        replayed += mine[: len(mine) // 2]
        asked += [] if left_out else mine[len(mine) // 2 :]
    return replayed, asked


def measure(
    prompts: Sequence[Prompt], weights: MemoryWeights, halves: int
) -> dict[str, list[tuple[str, float]]]:
    """Repository and change of Hit@1 of each prompt that was asked, by measure."""
    found: dict[str, list[tuple[str, float]]] = {}
    dimension = next(len(one.vector) for one in prompts if one.vector is not None)
    for seed in range(halves):
        for name, flipped, left_out in (*((*one, 0.0) for one in MEASURES), ("new", 0.0, NEW)):
            replayed, asked = split(prompts, seed, left_out)
            memory = TaskMemory(dimension, DEFAULT_TASK_SCALE.cosines, weights=weights)
            memory.add(remember(replayed, flipped, np.random.default_rng(seed)))
            for prompt in asked:
                evidence = memory.recall(prompt.words, prompt.vector, OwnerRules())
                effects = {skill_id: one.effect for skill_id, one in evidence.items()}
                change = float(prompt.is_hit(effects)) - float(prompt.is_hit({}))
                found.setdefault(name, []).append((prompt.repository, change))
    return found


def worth(found: Mapping[str, Sequence[tuple[str, float]]], groups: set[str]) -> float:
    """What a choice is worth on some repositories."""
    means = {
        name: float(np.mean([change for group, change in rows if group in groups] or [0.0]))
        for name, rows in found.items()
    }
    lost = min(means["new"] - LEAST_NEW, 0.0)
    return sum(share * means[name] for name, share in WORTH.items()) + 4 * lost


def show(name: str, found: Mapping[str, Sequence[tuple[str, float]]]) -> None:
    """One line of mean changes."""
    cells = (f"{one} {np.mean([x for _, x in rows]):+.3f}" for one, rows in found.items())
    print(f"{name}: {', '.join(cells)}", flush=True)


def main() -> int:
    """Rank, try, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("home", type=Path)
    parser.add_argument("prompts")
    parser.add_argument("--cases", type=Path)
    parser.add_argument("--repositories", type=Path)
    parser.add_argument("--choices", type=int, default=60)
    parser.add_argument("--halves", type=int, default=3)
    given = parser.parse_args()
    if given.cases is not None and given.cases.exists():
        prompts: list[Prompt] = pickle.loads(given.cases.read_bytes())
    else:
        repositories = read_repositories(given.repositories)
        backend = EmbeddedBackend(load_settings(given.home), writable=False)
        files = [Path(one) for one in given.prompts.split(",")]
        prompts = list(rank(backend.services, files, repositories))
        backend.stop()
        if given.cases is not None:
            given.cases.write_bytes(pickle.dumps(prompts))
    rng = np.random.default_rng(0)
    choices: list[dict[str, Any]] = [{}] + [
        {name: float(rng.choice(values)) for name, values in GRID.items()}
        for _ in range(given.choices)
    ]
    tried = []
    for choice in choices:
        found = measure(prompts, replace(MemoryWeights(), **choice), given.halves)
        show(str(choice or "in force"), found)
        tried.append((choice, found))
    groups = sorted({prompt.repository for prompt in prompts})
    held: dict[str, list[tuple[str, float]]] = {}
    for fold in range(FOLDS if given.choices else 0):
        outside = set(groups[fold::FOLDS])
        choice, found = max(tried, key=lambda pair: worth(pair[1], set(groups) - outside))
        print(f"fold {fold}: {choice or 'in force'}")
        for name, changes in found.items():
            held.setdefault(name, []).extend(one for one in changes if one[0] in outside)
    if held:
        show("repositories left out", held)
    return 0


if __name__ == "__main__":
    sys.exit(main())
