"""Time of queries of a library with past queries, with memory of them and without.

    python -m tests.bench.query_memory HOME TASKS.jsonl [--past N]

HOME   a searchable library; its outcomes are replaced: use a copy
TASKS  one object a line with `instruction`

Past queries, 100,000 by default, are near the tasks: a task's vector with noise, with outcomes of
five skills of the library, one of which helped. MOST tasks are asked with memory and without, in
one process whose caches hold what they need. Prints JSON: milliseconds from a query to its bundle,
and seconds until the first query of the process had read the past ones.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from config.load_settings import load_settings
from config.settings import Settings
from search.batches import batches
from search.protocol import Vector
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

MOST = 200
_DAYS = 180
_BATCH = 500
_NOISE = 0.6
"""Length of what is added at random to the unit vector of a task."""


def fill(
    store: OutcomeStore, count: int, texts: Sequence[str], vectors: Vector, model: str,
    skill_ids: Sequence[str],
) -> None:  # fmt: skip
    """Add past queries of one owner with an outcome for each of their skills."""
    drawn, rng = random.Random(0), np.random.default_rng(0)
    first_day = int(time.time() / SECONDS_PER_DAY) - _DAYS
    for numbers in batches(range(count), _BATCH):
        answers: list[AnsweredQuery] = []
        outcomes: list[Outcome] = []
        near: dict[str, StoredVector] = {}
        for number in numbers:
            query_id = f"{number:032x}"
            answered = (first_day + number % _DAYS) * SECONDS_PER_DAY
            chosen = drawn.sample(skill_ids, 5)
            skills = tuple(AnsweredSkill(one, 1, place) for place, one in enumerate(chosen, 1))
            task = texts[number % len(texts)]
            answers.append(AnsweredQuery(query_id, "", "", task, answered, True, None, skills))
            for place, one in enumerate(chosen, 1):
                kind = OutcomeKind.HELPED if place == 1 else OutcomeKind.REJECTED
                key = f"{query_id}-{place}"
                outcomes.append(
                    Outcome(key, query_id, one, kind, Reporter.VERIFIER, "", answered, place=place)
                )
            vector = vectors[number % len(texts)]
            noise = rng.normal(size=len(vector))
            mixed = vector + _NOISE * noise / np.linalg.norm(noise)
            near[query_id] = quantise_vector((mixed / np.linalg.norm(mixed)).astype(np.float32))
        store.add_answers(answers, TaskVectors(model, near))
        store.add_outcomes(outcomes)


def replace_outcomes(settings: Settings, texts: Sequence[str], count: int) -> None:
    """Give the library these past queries alone."""
    with EmbeddedBackend(settings, writable=False, embed_sections=False) as backend:
        encoder = backend.services.encoder.get()
        vectors = np.concatenate(
            [encoder.encode_queries(batch) for batch in batches(texts, _BATCH)]
        )
        skill_ids = sorted(backend.services.library.refresh().pointers)
    for file in settings.home.glob("outcomes.db*"):
        file.unlink()
    store = SqliteOutcomeStore(settings.home / "outcomes.db")
    fill(store, count, texts, vectors, encoder.model, skill_ids)
    store.close()


def measure(settings: Settings, texts: Sequence[str]) -> dict[str, Any]:
    """Times of all tasks with memory and without."""
    found: dict[str, list[float]] = {"with memory": [], "without": []}
    recall: list[float] = []
    with EmbeddedBackend(settings, writable=False, embed_sections=False) as backend:
        backend.warm_up()
        backend.answer_query(QueryAsked(task=texts[0], without=("memory",)), "skillbus/bench")
        started = time.perf_counter()
        backend.answer_query(QueryAsked(task=texts[0]), "skillbus/bench")
        first = time.perf_counter() - started
        ways: list[tuple[str, tuple[str, ...]]] = [("with memory", ()), ("without", ("memory",))]
        for text in texts:
            for _, without in ways:
                asked = QueryAsked(task=text, without=without)
                backend.answer_query(asked, "skillbus/bench")
        for place, text in enumerate([*texts, *texts]):
            for name, without in ways if place % 2 else reversed(ways):
                started = time.perf_counter()
                asked = QueryAsked(task=text, without=without)
                bundle = backend.answer_query(asked, "skillbus/bench")
                found[name].append((time.perf_counter() - started) * 1000)
                if not without:
                    recall.append(bundle["timings_ms"].get("memory", 0.0))
    return {
        "milliseconds": {name: percentiles(values) for name, values in found.items()},
        "stage_memory": percentiles(recall),
        "first_query_seconds": round(first, 2),
    }


def main() -> None:
    """Fill the store of outcomes, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("tasks", type=Path)
    parser.add_argument("--past", type=int, default=100_000)
    given = parser.parse_args()
    settings = load_settings().model_copy(update={"home": given.home})
    rows = [json.loads(line) for line in given.tasks.read_text("utf-8").splitlines()]
    texts = [row["instruction"] for row in rows if row.get("gt_skill_ids")]
    replace_outcomes(settings, texts, given.past)
    found = measure(settings, texts[:: max(len(texts) // MOST, 1)])
    print(json.dumps({"past": given.past} | found, indent=2))


if __name__ == "__main__":
    main()
