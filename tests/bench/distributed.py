"""Benchmarks of a distributed deployment: the servers that the settings name, workers running.

    python -m tests.bench.distributed query|ingest|mixed|burst [--library DIR] [--tasks F]

`query`: latency on what the library holds. `ingest`: a directory from nothing until searchable.
`mixed`: latency while another directory comes in. `burst`: many events for few skills. Prints
JSON; figures depend on the machine and on what else runs on it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from config.load_settings import load_settings
from config.logging import configure_logging
from skills.events import QueryAsked, SourceChanged
from tests.bench.library import make_library
from tests.bench.run import latencies, read_tasks, sync
from workers.backend.distributed import DistributedBackend
from workers.backend.store_backend import StoreBackend

ORIGIN = "skillbus/bench"


def bench_query(backend: StoreBackend, tasks: Sequence[str]) -> dict[str, Any]:
    """Query to bundle through broker and servers, each task once before to warm up."""
    for task in tasks:
        backend.answer_query(QueryAsked(task=task), ORIGIN)
    return {"latency_ms": latencies(backend, list(tasks) * 4)}


def bench_ingest(backend: StoreBackend, root: Path, until: str) -> dict[str, Any]:
    """A directory that the library does not know yet; skills a second until searchable."""
    before = backend.get_progress()["published"]
    times = sync(backend, root, until)
    came = backend.get_progress()["published"] - before
    return {**times, "skills": came, "per_second": round(came / times["searchable_s"], 1)}


def bench_mixed(backend: StoreBackend, root: Path, tasks: Sequence[str]) -> dict[str, Any]:
    """Latency before, and while a directory comes in."""
    report: dict[str, Any] = {"idle": bench_query(backend, tasks)["latency_ms"]}
    with ThreadPoolExecutor(1) as pool:
        arriving = pool.submit(sync, backend, root, "searchable")
        time.sleep(3.0)  # planning is over, ingest has begun
        report["while_ingesting"] = latencies(backend, list(tasks) * 4)
        report["still_arriving_at_the_end"] = not arriving.done()
        arriving.result()  # raises if the directory could not be read
    return report


def bench_burst(backend: StoreBackend, root: Path, skills: int, events: int) -> dict[str, Any]:
    """Edits one after the other in turn, an event each; how many revisions that made."""
    sync(backend, root, "searchable")
    files = sorted(root.rglob("SKILL.md"))[:skills]
    ids = [f"{root.name}:{file.parent.relative_to(root).as_posix()}" for file in files]
    before = max(entry.seq for entry in backend.graph.get_entries())
    started = time.monotonic()
    for number in range(events):
        file = files[number % len(files)]
        with file.open("a", encoding="utf-8") as text:
            text.write(f"\nEdit {number} of the burst.\n")
        path = f"{file.parent.relative_to(root).as_posix()}/SKILL.md"
        backend.submit(SourceChanged(source_id=root.name, root=str(root), paths=(path,)), ORIGIN)
    sent = time.monotonic() - started
    while (counts := backend.get_progress())["waiting"] or counts["events"]:
        time.sleep(0.1)
    settled = time.monotonic() - started
    newest = max(entry.seq for entry in backend.graph.get_entries(ids))
    return {
        "events": events,
        "skills": len(ids),
        "sent_s": round(sent, 2),
        "settled_s": round(settled, 2),
        # Each ingest of a skill takes a number, and so does each plan.
        "numbers_taken": newest - before,
    }


def main() -> None:
    """Run one benchmark and print its figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["query", "ingest", "mixed", "burst"])
    parser.add_argument("--library", type=Path)
    parser.add_argument("--skills", type=int, default=300, help="size of a made-up library")
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--tasks", type=Path)
    parser.add_argument("--until", choices=["searchable", "paged"], default="searchable")
    given = parser.parse_args()
    configure_logging("warning")
    tasks = read_tasks(given.tasks)
    with tempfile.TemporaryDirectory() as scratch, DistributedBackend(load_settings()) as backend:
        root = (
            given.library.resolve() if given.library else Path(scratch, f"made-up-{time.time_ns()}")
        )
        if not given.library and given.what != "query":
            make_library(root, given.skills, seed=time.time_ns())
        if given.what == "query":
            report = bench_query(backend, tasks)
        elif given.what == "ingest":
            report = bench_ingest(backend, root, given.until)
        elif given.what == "mixed":
            report = bench_mixed(backend, root, tasks)
        else:
            report = bench_burst(backend, root, given.skills, given.events)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
