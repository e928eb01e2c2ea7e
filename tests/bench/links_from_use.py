"""Measures ranking with links from use, and chooses how much companions get.

    python -m tests.bench.links_from_use HOME TASKS.jsonl[,TASKS.jsonl …] [--prompts PROMPTS.jsonl]

HOME     a library, searchable and linked
TASKS    one object a line: task_id, instruction, gt_skill_ids; each file is a collection
PROMPTS  the same with short prompts, for which nothing may change

Five folds, SEEDS times: the tasks of the other folds say that their skills helped. Prints Hit@1,
R@10 and FC@10 of each collection without links from use, with them for each value of
`diffusion.companions`, and with the value that is best on the other collections (of several equal
ones the smallest). Then what outcomes of the very same tasks would give, and what random companions
of every skill would take: neither chooses anything. In the end, prompts with companions of every
needed skill that are drawn at random.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from config.load_settings import load_settings
from graph.pagerank import ReadAdjacency
from graph.records import Link, LinkType
from skills.events import QueryAsked
from skills.outcomes.model import AnsweredQuery, Outcome, OutcomeKind, Reporter
from tasks.outcomes.protocol import OutcomeStore
from tasks.outcomes.sqlite import SqliteOutcomeStore
from tasks.query.context import QueryContext
from tasks.query.diffuse import diffuse
from tasks.query.pipeline import rank_candidates
from tasks.query.ranking import Ranking
from tasks.query.rerank import rerank
from tasks.services import Services
from workers.backend.embedded import EmbeddedBackend
from workers.evaluation.learned_links import LearnedGraph, learn_links
from workers.evaluation.metrics import routing_metrics_by_task
from workers.evaluation.predictions import read_jsonl

COMPANIONS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
NAMES = ("Hit@1", "R@10", "FC@10")
FOLDS = 5
SEEDS = 5
RANDOM_COMPANIONS = 5
RANDOM_WEIGHT = 0.4

Floats = npt.NDArray[np.float64]


class Task(NamedTuple):
    """A labelled task and its candidates before diffusion."""

    row: dict[str, Any]
    ranking: Ranking


class RandomCompanions:
    """Links from use that are wrong: every skill has some others, drawn by chance."""

    def __init__(self, skill_ids: Sequence[str], seed: int) -> None:
        chosen = random.Random(seed)
        self._links = {
            one: [
                Link(one, one, other, LinkType.USED_TOGETHER, RANDOM_WEIGHT, "outcomes: drawn")
                for other in chosen.sample(sorted({*skill_ids} - {one}), RANDOM_COMPANIONS)
            ]
            for one in sorted(skill_ids)
        }

    def find_links(self, skill_ids: Sequence[str]) -> Mapping[str, Sequence[Link]]:
        """The links that start at these skills."""
        return {one: self._links.get(one, []) for one in skill_ids}

    def adapt(self, link: Link) -> Link:
        """The link as it is."""
        return link


def read_tasks(services: Services, file: Path) -> list[Task]:
    """The tasks of a file that need skills, ranked up to diffusion."""
    found = []
    for row in read_jsonl(file, ("task_id", "instruction")):
        if row.get("gt_skill_ids"):
            context = QueryContext.create(services, QueryAsked(task=row["instruction"]))
            found.append(Task(row, rerank(context, rank_candidates(context))))
    return found


def measure(
    services: Services,
    tasks: Sequence[Task],
    rows: ReadAdjacency | Sequence[ReadAdjacency],
    factor: float,
) -> Floats:
    """The metrics of each task, (tasks, 3). rows: reads links, for all tasks or for each one."""
    settings = services.settings.diffusion.model_copy(update={"companions": factor})
    pointers = services.library.latest.pointers
    found = []
    each = [rows] * len(tasks) if callable(rows) else rows
    for task, read in zip(tasks, each, strict=True):
        ranking = diffuse(task.ranking, settings, read, pointers)
        ids = [hit.key.skill_id for hit in ranking.hits[:10]]
        wanted = {"task": task.row["gt_skill_ids"]}
        values = routing_metrics_by_task(wanted, {"task": ids})["task"]
        found.append([values[name] for name in NAMES])
    return np.array(found)


def reader(services: Services, graph: Any) -> ReadAdjacency:
    """Reads the links of a catalog."""
    fan_out = services.settings.diffusion.fan_out
    return lambda ids: graph.get_adjacency(ids, fan_out)


def report_helped(store: OutcomeStore, tasks: Iterable[Mapping[str, Any]]) -> None:
    """Store for each labelled task that its skills helped, as reported by a local verifier."""
    for number, task in enumerate(tasks):
        query_id = f"task-{number}"  # several collections may use the same `task_id`
        answer = AnsweredQuery(query_id, "", "", task["instruction"], 0.0, hit=True)
        store.add_answers([answer])
        store.add_outcomes(
            [
                Outcome(
                    f"{query_id}-{place}",
                    query_id,
                    skill_id,
                    OutcomeKind.HELPED,
                    Reporter.VERIFIER,
                    "",
                    0.0,
                )
                for place, skill_id in enumerate(dict.fromkeys(task["gt_skill_ids"]))
            ]
        )


def split_into_folds(count: int, folds: int, seed: int) -> list[int]:
    """Return the fold of each task; sizes of folds differ by at most one."""
    order = list(range(count))
    random.Random(seed).shuffle(order)
    found = [0] * count
    for place, at in enumerate(order):
        found[at] = place % folds
    return found


def learned_reader(services: Services, tasks: Sequence[Task]) -> ReadAdjacency:
    """Reads links as they are with outcomes of these tasks."""
    store = SqliteOutcomeStore(":memory:")
    report_helped(store, [task.row for task in tasks])
    return reader(services, LearnedGraph(services.graph, learn_links(services, store)))


def measure_folds(services: Services, tasks: Sequence[Task]) -> dict[float, Floats]:
    """By factor, (tasks, 3): the mean over SEEDS splits into folds."""
    found: dict[float, list[Floats]] = {factor: [] for factor in COMPANIONS}
    for seed in range(SEEDS):
        places = split_into_folds(len(tasks), FOLDS, seed)
        readers = [
            learned_reader(
                services, [task for task, at in zip(tasks, places, strict=True) if at != fold]
            )
            for fold in range(FOLDS)
        ]
        for factor in COMPANIONS:
            each = [readers[fold] for fold in places]
            found[factor].append(measure(services, tasks, each, factor))
    return {factor: np.mean(values, axis=0) for factor, values in found.items()}


def show(name: str, values: Floats) -> None:
    """Print the means of one configuration."""
    print(f"{name:>44}  " + " / ".join(f"{value:.4f}" for value in values.mean(0)))


def report_tasks(services: Services, collections: Mapping[str, Sequence[Task]]) -> None:
    """Measure and print the collections of tasks."""
    folded = {name: measure_folds(services, tasks) for name, tasks in collections.items()}
    plain = reader(services, services.graph)
    for name, tasks in collections.items():
        print(f"{name}: {len(tasks)} tasks, {' / '.join(NAMES)}")
        show("without links from use", measure(services, tasks, plain, 0.0))
        for factor, values in folded[name].items():
            show(f"five folds, companions {factor:g}", values)
        others = [folded[other] for other in collections if other != name]
        if others:
            best = max(
                COMPANIONS,
                key=lambda factor: (
                    round(float(np.mean([one[factor][:, 2].mean() for one in others])), 6),
                    -factor,
                ),
            )
            show(f"best of the other collections, {best:g}", folded[name][best])
        own = learned_reader(services, tasks)
        skill_ids = sorted({one for task in tasks for one in task.row["gt_skill_ids"]})
        for factor in COMPANIONS:
            show(
                f"outcomes of the same tasks, {factor:g}",
                measure(services, tasks, own, factor),
            )
            drawn = [
                reader(services, LearnedGraph(services.graph, RandomCompanions(skill_ids, seed)))
                for seed in range(SEEDS)
            ]
            noise = [measure(services, tasks, one, factor) for one in drawn]
            show(f"random companions, {factor:g}", np.mean(noise, axis=0))


def report_prompts(services: Services, prompts: Sequence[Task], tasks: Sequence[Task]) -> None:
    """Measure and print the prompts: with outcomes of the tasks, and with random companions."""
    print(f"{len(prompts)} prompts, {' / '.join(NAMES)}")
    skill_ids = sorted({one for task in prompts for one in task.row["gt_skill_ids"]})
    readers = {
        "without links from use": reader(services, services.graph),
        "with outcomes of the tasks": learned_reader(services, tasks),
        "with random companions": reader(
            services, LearnedGraph(services.graph, RandomCompanions(skill_ids, 0))
        ),
    }
    factor = services.settings.diffusion.companions
    for name, rows in readers.items():
        show(name, measure(services, prompts, rows, factor))


def main() -> None:
    """Measure; print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("home", type=Path)
    parser.add_argument("tasks")
    parser.add_argument("--prompts", type=Path)
    given = parser.parse_args()
    backend = EmbeddedBackend(load_settings(given.home), writable=False)
    try:
        services = backend.services
        files = [Path(name) for name in given.tasks.split(",")]
        collections = {
            f"{file.parent.name}/{file.name}": read_tasks(services, file) for file in files
        }
        report_tasks(services, collections)
        if given.prompts:
            tasks = [task for found in collections.values() for task in found]
            report_prompts(services, read_tasks(services, given.prompts), tasks)
    finally:
        backend.stop()


if __name__ == "__main__":
    main()
