"""Queries of a library by stage, and the bytes that it takes.

    python -m tests.bench.stages TASKS.jsonl [--home HOME] [--tasks N]

TASKS    objects with `instruction`, as `eval routing` reads them; N of them are asked, in random
         order (60 unless given), each once, by a process that has just started
HOME     an embedded library, which is not changed; no `serve` of it need run. Without it the
         servers that the settings name are asked, as a worker does it

Prints JSON: the seconds until the process is warm; p50 and p95 of the milliseconds of each stage,
of a query and of all but the encoding of its task (`beyond_encoding`); the peak RSS in MB, pages
of mapped files included, and what of it is not pages of files at the end; and the bytes a skill by
file or folder of the home; `skillbus status` has those of servers.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil

from config.load_settings import load_settings
from config.logging import configure_logging
from skills.events import QueryAsked
from tasks.policies import QUERY_QUEUE, Deadline
from tasks.query.context import StageTimings
from tasks.query.pipeline import answer_query
from tasks.services import Services
from tests.bench.run import percentiles
from workers.backend.stores import open_services
from workers.evaluation.predictions import read_jsonl
from workers.processes.warm_up import warm_up

_SECONDS = 60.0
_SEED = 7
_STORES = (
    "graph.db",
    "index/revisions.sqlite",
    "index/terms",
    "index/packs",
    "index/statistics",
)


def measure_queries(services: Services, tasks: list[str]) -> dict[str, dict[str, float]]:
    """p50, p95 and maximum in milliseconds, by stage."""
    spent: defaultdict[str, list[float]] = defaultdict(list)
    for number, task in enumerate(tasks):
        timings = StageTimings()
        started = time.perf_counter()
        request = QueryAsked(task=task)
        answer_query(services, Deadline(_SECONDS), str(number), request, timings)
        total = (time.perf_counter() - started) * 1000
        stages = timings.milliseconds
        for stage, milliseconds in stages.items():
            spent[stage].append(milliseconds)
        spent["query"].append(total)
        spent["beyond_encoding"].append(total - stages.get("encode", 0.0))
    return {stage: percentiles(values) for stage, values in spent.items()}


def size_of(path: Path) -> int:
    """The bytes of a file, or of all files below a folder."""
    files = [path] if path.is_file() else path.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())


def _send_nothing(name: str, ids: Sequence[object]) -> None:
    """What is found missing meanwhile is left to the library's own processes."""


def main() -> None:
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, metavar="TASKS.jsonl")
    parser.add_argument("--home", type=Path)
    parser.add_argument("--tasks", type=int, default=60)
    arguments = parser.parse_args()
    configure_logging("ERROR")
    tasks = [row["instruction"] for row in read_jsonl(arguments.file, ["instruction"])]
    random.Random(_SEED).shuffle(tasks)
    settings = load_settings(arguments.home)
    if settings.distributed is (arguments.home is not None):
        parser.error("name a home, or servers in the settings")
    found: dict[str, Any] = {}
    started = time.monotonic()
    with ExitStack() as stack:
        services = open_services(settings, stack, _send_nothing, writable=False)
        warm_up(services, [QUERY_QUEUE])
        found["warm_s"] = round(time.monotonic() - started, 2)
        found["ms"] = measure_queries(services, tasks[: arguments.tasks])
        found["skills"] = skills = len(services.index.list_keys())
        memory = psutil.Process().memory_info()
        found["anonymous_mb"] = round((memory.rss - memory.shared) / 2**20)
    found["peak_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    if arguments.home:
        found["bytes_per_skill"] = {
            name: round(size_of(arguments.home / name) / max(skills, 1)) for name in _STORES
        }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
