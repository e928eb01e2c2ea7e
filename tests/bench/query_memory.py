"""Time of queries of a library with past queries, with memory of them and without.

    python -m tests.bench.query_memory HOME TASKS.jsonl [--past N | --keep]

HOME   a searchable library; its outcomes are replaced: use a copy
TASKS  one object a line: instruction, gt_skill_ids

Past queries, 100,000 by default, are near the tasks: a task's vector with noise, whose needed skill
helped, and four others, drawn from the library, were rejected. MOST tasks are asked with memory and
without, in one process whose caches hold what they need. Prints JSON: milliseconds from a query to
its bundle, and seconds until the first query of the process had read the past ones.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from config.load_settings import load_settings
from config.settings import Settings
from search.protocol import Vector
from skills.batches import batches
from skills.events import QueryAsked
from skills.outcomes.model import (
    SECONDS_PER_DAY,
    AnsweredQuery,
    AnsweredSkill,
    Outcome,
    OutcomeKind,
    Reporter,
)
from tasks.outcomes.protocol import OutcomeStore, StoredVector, TaskVectors, quantise_vector
from tasks.outcomes.sqlite import SqliteOutcomeStore
from tests.bench.run import percentiles
from workers.backend.embedded import EmbeddedBackend
from workers.evaluation.learning_stream import LabelledTask, read_tasks
from workers.evaluation.predictions import read_jsonl

MOST = 200
_DAYS = 180
_BATCH = 500
_NOISE = 0.6
"""Length of what is added at random to the unit vector of a task."""


def fill(
    store: OutcomeStore,
    count: int,
    tasks: Sequence[LabelledTask],
    vectors: Vector,
    model: str,
    skill_ids: Sequence[str],
) -> None:
    """Add past queries of the user of this machine, with outcomes of five skills each."""
    drawn, rng = random.Random(0), np.random.default_rng(0)
    first_day = int(time.time() / SECONDS_PER_DAY) - _DAYS
    for numbers in batches(range(count), _BATCH):
        answers: list[AnsweredQuery] = []
        outcomes: list[Outcome] = []
        near: dict[str, StoredVector] = {}
        for number in numbers:
            task, vector = tasks[number % len(tasks)], vectors[number % len(tasks)]
            query_id, day = f"{number:032x}", first_day + number % _DAYS
            named = [task.right[0], *drawn.sample(skill_ids, 4)]
            answers.append(_answer(query_id, task.text, named, day * SECONDS_PER_DAY))
            outcomes += _report(answers[-1])
            noise = rng.normal(size=len(vector))
            mixed = vector + _NOISE * noise / np.linalg.norm(noise)
            near[query_id] = quantise_vector((mixed / np.linalg.norm(mixed)).astype(np.float32))
        store.add_answers(answers, TaskVectors(model, near))
        store.add_outcomes(outcomes)


def _answer(query_id: str, task: str, named: Sequence[str], at: float) -> AnsweredQuery:
    skills = tuple(AnsweredSkill(one, 1, place) for place, one in enumerate(named, 1))
    return AnsweredQuery(query_id, "", "", task, at, True, None, skills)


def _report(answer: AnsweredQuery) -> Iterator[Outcome]:
    """The first skill of the answer helped, the others were rejected."""
    for skill in answer.skills:
        kind = OutcomeKind.HELPED if skill.place == 1 else OutcomeKind.REJECTED
        yield Outcome(
            f"{answer.query_id}-{skill.place}",
            answer.query_id,
            skill.skill_id,
            kind,
            Reporter.VERIFIER,
            "",
            answer.answered,
            place=skill.place,
        )


def replace_outcomes(settings: Settings, tasks: Sequence[LabelledTask], count: int) -> None:
    """Give the library these past queries alone."""
    with EmbeddedBackend(settings, writable=False, embeds="skills") as backend:
        encoder = backend.services.encoder.get()
        texts = [task.text for task in tasks]
        vectors = np.concatenate(
            [encoder.encode_queries(batch) for batch in batches(texts, _BATCH)]
        )
        skill_ids = sorted(backend.services.library.refresh().pointers)
    for file in settings.home.glob("outcomes.db*"):
        file.unlink()
    store = SqliteOutcomeStore(settings.home / "outcomes.db")
    fill(store, count, tasks, vectors, encoder.model, skill_ids)
    store.close()


def measure(settings: Settings, texts: Sequence[str]) -> dict[str, Any]:
    """Times of all tasks with memory and without."""
    ways: dict[str, tuple[str, ...]] = {"with memory": (), "without": ("memory",)}
    total: dict[str, list[float]] = {name: [] for name in ways}
    stages: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    with EmbeddedBackend(settings, writable=False, embeds="skills") as backend:

        def ask(text: str, name: str) -> None:
            started = time.perf_counter()
            asked = QueryAsked(task=text, without=ways[name])
            bundle = backend.answer_query(asked, "skillbus/bench")
            total[name].append((time.perf_counter() - started) * 1000)
            stages[name].append(bundle["timings_ms"])

        backend.warm_up()
        ask(texts[0], "without")
        ask(texts[0], "with memory")
        first = total["with memory"][0] / 1000
        for text in texts:
            for name in ways:
                ask(text, name)
        for name in ways:
            total[name].clear()
            stages[name].clear()
        for place, text in enumerate([*texts, *texts]):
            for name in ways if place % 2 else reversed(ways):
                ask(text, name)
    return {
        "milliseconds": {name: percentiles(values) for name, values in total.items()},
        "stages_p50": {name: _medians(found) for name, found in stages.items()},
        "first_query_seconds": round(first, 2),
    }


def _medians(stages: Sequence[dict[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for one in stages for name in one)
    return {
        name: round(statistics.median(one.get(name, 0.0) for one in stages), 2) for name in names
    }


def main() -> None:
    """Fill the store of outcomes, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("tasks", type=Path)
    parser.add_argument("--past", type=int, default=100_000)
    parser.add_argument("--keep", action="store_true", help="measure with the outcomes there are")
    given = parser.parse_args()
    settings = load_settings().model_copy(update={"home": given.home})
    tasks = read_tasks(read_jsonl(given.tasks, ("task_id", "instruction")))
    if not given.keep:
        replace_outcomes(settings, tasks, given.past)
    found = measure(settings, [task.text for task in tasks[:: max(len(tasks) // MOST, 1)]])
    print(json.dumps({"past": given.past} | found, indent=2))


if __name__ == "__main__":
    main()
