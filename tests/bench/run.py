"""Benchmarks of the embedded deployment on a library of one's own or a made-up one.

    python -m tests.bench.run ingest|query|edit|memory [--library DIR]... [--skills N] [--tasks F]

Prints JSON. Nothing here is a test: figures depend on the machine and on what else runs on it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from config.load_settings import load_settings
from config.logging import configure_logging
from config.settings import Settings
from search.protocol import Encoder
from search.skill_analysis import skill_texts
from skills.events import QueryAsked, SourceChanged
from skills.parsing.parse_skill import parse_skill
from skills.passages import section_texts
from tasks.encode import supports_language
from tests.bench.library import make_library
from workers.backend.embedded import EmbeddedBackend
from workers.backend.protocol import EmbedMode
from workers.backend.serve_client import ServeClient
from workers.backend.store_backend import StoreBackend
from workers.cli.exit_codes import EXIT_NO_SKILL_HIT
from workers.evaluation.predictions import percentile, read_jsonl
from workers.processes.interpreter import skillbus_command

PROGRAM = skillbus_command([])


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """p50, p95 and maximum, in the unit of the values."""
    return {
        "p50": round(statistics.median(values), 2),
        "p95": round(percentile(values, 0.95), 2),
        "max": round(max(values), 2),
    }


def sync(backend: StoreBackend, root: Path, until: str = "paged") -> dict[str, float]:
    """Sync a directory through the queues; seconds until all skills are found by their words, until
    searchable by their meaning too, and until paged and linked."""
    started = time.monotonic()
    event = backend.submit(SourceChanged(source_id=root.name, root=str(root)), "skillbus/bench")
    times: dict[str, float] = {}
    while not backend.stopping.wait(0.1):
        counts = backend.get_progress()
        state, reason = backend.journal.get_job_states([event])[event]
        if state == "failed":
            raise SystemExit(reason)
        if state != "done" or counts["waiting"]:
            continue
        now = round(time.monotonic() - started, 2)
        times.setdefault("words_s", now)
        if counts["with_vectors"] < counts["published"]:
            continue
        times.setdefault("searchable_s", now)
        if until == "searchable":
            break
        if counts["embedded"] == counts["published"] and not counts["unlinked"]:
            times["paged_s"] = now
            break
    return times


def bench_ingest(settings: Settings, roots: Sequence[Path], until: str) -> dict[str, Any]:
    """Sync from nothing, bare encoding of the same section texts, and an unchanged re-sync."""
    report: dict[str, Any] = {}
    with EmbeddedBackend(settings, writable=True) as backend:
        backend.warm_up()
        for root in roots:
            report[f"sync {root.name}"] = sync(backend, root, until)
        report["counts"] = dict(backend.get_progress())
        if until == "paged":
            report["bare_encoder"] = _bare(backend, roots)
    started = time.monotonic()
    for root in roots:
        subprocess.run(
            [*PROGRAM, "--home", str(settings.home), "sync", str(root), "--until", "searchable"],
            check=True,
            capture_output=True,
        )
    seconds = time.monotonic() - started
    report["unchanged_resync"] = {
        "seconds": round(seconds, 2),
        "skills_per_second": round(report["counts"]["published"] / seconds),
    }
    return report


def _bare(backend: EmbeddedBackend, roots: Sequence[Path]) -> dict[str, float]:
    """The encoder alone on the texts that a sync encodes, on as many threads as paging has."""
    encoder = backend.services.encoder.get()
    texts = list(
        dict.fromkeys(
            text
            for root in roots
            for path in sorted(root.rglob("SKILL.md"))
            for text in _encoded_texts(encoder, path)
        )
    )
    threads = backend.settings.workers.embed_threads
    started = time.monotonic()
    workers = [
        threading.Thread(target=encoder.encode_texts, args=(texts[part::threads],))
        for part in range(threads)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    seconds = time.monotonic() - started
    return {"texts": len(texts), "seconds": round(seconds, 2)}


def _encoded_texts(encoder: Encoder, path: Path) -> tuple[str, ...]:
    content = path.read_bytes()
    if not content.strip():
        return ()
    parsed = parse_skill(path.parent.name, content)
    if not supports_language(encoder, parsed):
        return ()
    return (*skill_texts(parsed), *section_texts(parsed))


def bench_query(settings: Settings, tasks: Sequence[str], paging: bool) -> dict[str, Any]:
    """Query to bundle through Celery, warm; and of encoding the task's text alone.

    With `paging` whatever is not paged yet is being paged meanwhile; `left_to_page` is its number
    at the end: 0 if the paging ended before the queries did.
    """
    embeds: EmbedMode = "sections" if paging else "skills"
    with EmbeddedBackend(settings, writable=True, embeds=embeds) as backend:
        backend.warm_up()
        busy = backend.get_progress()
        for task in tasks:
            backend.answer_query(QueryAsked(task=task), "skillbus/bench")
        report: dict[str, Any] = {"counts": dict(busy)}
        report["latency_ms"] = latencies(backend, list(tasks) * 4)
        left = backend.get_progress()
        return report | {"left_to_page": left["published"] - left["embedded"]}


def latencies(backend: StoreBackend, tasks: Sequence[str]) -> dict[str, Any]:
    """Milliseconds from a query to its bundle, without those of encoding the task, by stage too."""
    total, encode, stages = [], [], []
    for task in tasks:
        started = time.perf_counter()
        bundle = backend.answer_query(QueryAsked(task=task), "skillbus/bench")
        milliseconds = (time.perf_counter() - started) * 1000
        encode.append(bundle["timings_ms"].get("encode", 0.0))
        total.append(milliseconds - encode[-1])
        stages.append(bundle["timings_ms"])
    names = dict.fromkeys(name for stage in stages for name in stage)
    return {
        "beyond_encoding": percentiles(total),
        "encoding": percentiles(encode),
        "stages_p50": {
            name: round(statistics.median(stage.get(name, 0.0) for stage in stages), 2)
            for name in names
        },
    }


def bench_edit(settings: Settings, root: Path, paging: bool, edits: int = 100) -> dict[str, Any]:
    """Edits at 5 a second to a synced directory, each timed until its revision is published: from
    then on the skill is found by its words."""
    files = sorted(root.rglob("SKILL.md"))[:edits]
    waits: list[float] = []
    embeds: EmbedMode = "sections" if paging else "skills"
    with EmbeddedBackend(settings, writable=True, embeds=embeds) as backend:
        backend.warm_up()
        graph = backend.services.graph
        before = time.process_time()
        for number, file in enumerate(files):
            began = time.monotonic()
            original = file.read_text(encoding="utf-8", errors="replace")
            path = file.parent.relative_to(root).as_posix()
            skill_id = f"{root.name}:{path}"
            old = graph.get_entries([skill_id])[0].seq
            file.write_text(f"{original}\nEdit {number} of the benchmark.\n", encoding="utf-8")
            backend.submit(
                SourceChanged(source_id=root.name, root=str(root), paths=(f"{path}/SKILL.md",)),
                "skillbus/bench",
            )
            while graph.get_entries([skill_id])[0].seq == old:
                time.sleep(0.002)
            waits.append((time.monotonic() - began) * 1000)
            file.write_text(original, encoding="utf-8")
            time.sleep(max(0.0, 0.2 - (time.monotonic() - began)))
        cpu = (time.process_time() - before) / len(files)
        return {
            "counts": dict(backend.get_progress()),
            "published_ms": percentiles(waits),
            "cpu_ms_per_edit": round(cpu * 1000, 1),
        }


def bench_memory(settings: Settings, tasks: Sequence[str]) -> dict[str, Any]:
    """PSS of `serve` and its children after answering all tasks, in MB."""
    with serving(settings.home) as process:
        for task in tasks:
            asked = subprocess.run(
                [*PROGRAM, "--home", str(settings.home), "query", "-"],
                input=task.encode(),
                check=False,
                stdout=subprocess.DEVNULL,
            )
            if asked.returncode not in (0, EXIT_NO_SKILL_HIT):
                raise SystemExit(f"a query ended with {asked.returncode}")
        family = [process, *process.children(recursive=True)]
        return {"pss_mb": round(sum(one.memory_full_info().pss for one in family) / 1e6)}


@contextmanager
def serving(home: Path, *options: str, **environment: str) -> Iterator[psutil.Process]:
    """`skillbus serve` on a home, once it answers."""
    command = [*PROGRAM, "--home", str(home), "serve", *options]
    process = subprocess.Popen(command, env=os.environ | environment)
    try:
        while ServeClient.connect(home) is None:
            if process.poll() is not None:
                raise SystemExit(f"skillbus serve ended with {process.returncode}")
            time.sleep(0.1)
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(60)


def read_tasks(path: Path | None) -> list[str]:
    """Task texts of a JSONL file; the examples' without one."""
    source = path or Path(__file__).resolve().parents[2] / "examples" / "tasks.jsonl"
    return [row["instruction"] for row in read_jsonl(source, ("instruction",))]


def main() -> None:
    """Run one benchmark and print its figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["ingest", "query", "edit", "memory"])
    parser.add_argument("--library", type=Path, action="append", default=[])
    parser.add_argument("--skills", type=int, default=300, help="size of a made-up library")
    parser.add_argument("--tasks", type=Path)
    parser.add_argument("--home", type=Path, help="a home that is there already, or will be")
    parser.add_argument("--idle", action="store_true", help="query, edit: page nothing meanwhile")
    parser.add_argument("--until", choices=["searchable", "paged"], default="paged")
    given = parser.parse_args()
    configure_logging("warning")
    with tempfile.TemporaryDirectory() as scratch:
        roots = [root.resolve() for root in given.library]
        if not roots:
            roots = [Path(scratch, "made-up")]
            make_library(roots[0], given.skills)
        settings = load_settings(given.home or Path(scratch, "home"))
        tasks = read_tasks(given.tasks)
        if given.what == "ingest":
            report = bench_ingest(settings, roots, given.until)
        else:
            if not (settings.home / "graph.db").exists():
                # What is paged meanwhile has to be left to page.
                pages = given.what == "query" and not given.idle
                bench_ingest(settings, roots, "searchable" if pages else given.until)
            if given.what == "query":
                report = bench_query(settings, tasks, not given.idle)
            elif given.what == "edit":
                report = bench_edit(settings, roots[0], not given.idle)
            else:
                report = bench_memory(settings, tasks)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
