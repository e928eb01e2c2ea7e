"""Queries while the language model's endpoint stalls, compared with queries without the model.

    python -m tests.bench.stalled_model --home HOME --tasks tasks.jsonl [--queries 40]

Prints milliseconds as JSON: p50 and p95 of a query without the model, and of what a query takes
beyond `query_milliseconds` while every call stalls: before and after the circuit opened.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from skills.events import QueryAsked
from tasks.language_model.openai_client import OpenAILanguageModel
from tasks.policies import Deadline
from tasks.query.pipeline import answer_query
from tasks.services import Lazy, Services
from tests.bench.recorded_queries import open_services
from tests.support.servers.language_model import LanguageModelServer, stalling
from workers.evaluation.predictions import read_jsonl

_QUERY_MILLISECONDS = 500


def measure(services: Services, tasks: Iterable[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Milliseconds of each query, and of its stage `select`."""
    found = []
    for task in tasks:
        started = time.perf_counter()
        request = QueryAsked(task=task["instruction"])
        bundle = answer_query(services, Deadline(60), task["task_id"], request)
        took = (time.perf_counter() - started) * 1000
        found.append((took, bundle.timings_ms.get("select", 0.0)))
    return found


def summarise(values: Iterable[float]) -> dict[str, float]:
    """p50, p95 and the number of values."""
    given = list(values)
    p50, p95 = np.percentile(given, [50, 95]).tolist() if given else (0.0, 0.0)
    return {"queries": len(given), "p50": round(p50, 1), "p95": round(p95, 1)}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--tasks", type=Path, required=True)
    parser.add_argument("--queries", type=int, default=40)
    given = parser.parse_args()
    rows = read_jsonl(given.tasks, ("task_id", "instruction"))
    tasks = list(itertools.islice(itertools.cycle(rows), given.queries))
    with LanguageModelServer(lambda _: stalling()) as server:
        settings = server.settings(query_milliseconds=_QUERY_MILLISECONDS)
        with (
            open_services(given.home, settings) as services,
            closing(OpenAILanguageModel(settings)) as model,
        ):
            without = replace(services, language_model=None, answers=None)
            stalled = replace(services, language_model=Lazy(lambda: model), answers=None)
            measure(without, rows)  # warm
            off = measure(without, tasks)
            on = measure(stalled, tasks)
    waited = [took for took, select in on if select >= _QUERY_MILLISECONDS * 0.9]
    refused = [took for took, select in on if select < _QUERY_MILLISECONDS * 0.9]
    report = {
        "without the model": summarise(took for took, _ in off),
        "stalled, beyond query_milliseconds": summarise(
            took - _QUERY_MILLISECONDS for took in waited
        ),
        "circuit open": summarise(refused),
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
