"""Benchmarks of the catalog on Neo4j and of the embedded one, on a copy of an existing library.

    python -m tests.bench.catalog HOME [--url bolt://host:port] [--password-file F] [--keep]

Empties the database that the address names and copies the catalog of HOME into it (with --keep it
takes what is there), then measures both. Prints JSON, times in milliseconds as [median, 95th
percentile]; they depend on the machine and on what else runs on it.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from config.server_settings import ServerSettings
from config.settings import DiffusionSettings
from graph import pagerank
from graph.links.linker import Linker
from graph.local.store import SqliteSkillGraph
from graph.protocol import SkillGraph
from tests.bench.fill import copy_graph
from tests.support.samples.catalog import catalog_settings, empty_catalog, open_catalog
from workers.evaluation.predictions import percentile

_QUERIES = 60
_SEEDS = 5


def timed(work: Callable[[], object], times: int) -> list[float]:
    """Median and 95th percentile of some calls, in milliseconds."""
    spent = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        spent.append((time.perf_counter() - started) * 1000)
    return spread(spent)


def spread(spent: Sequence[float]) -> list[float]:
    """Median and 95th percentile."""
    return [round(statistics.median(spent), 2), round(percentile(spent, 0.95), 2)]


def seeds_of(graph: SkillGraph, ids: Sequence[str], dice: random.Random) -> dict[str, float]:
    """Seeds as a query has them: a skill, and some that are linked to it."""
    first = dice.choice(ids)
    row = graph.get_adjacency([first], _SEEDS - 1)[first]
    return {first: 1.0} | {one.skill_id: one.weight for one in row.neighbours}


def bench_diffusion(graph: SkillGraph, queries: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Rows read hop by hop, as the settings of a query say; the second time from memory."""
    settings = DiffusionSettings()
    report: dict[str, Any] = {}
    hops: list[int] = []
    for turn in ("first", "again"):
        spent = []
        for seeds in queries:
            started = time.perf_counter()
            found = pagerank.personalised_pagerank(
                seeds, lambda ids: graph.get_adjacency(ids, settings.fan_out), settings
            )
            spent.append((time.perf_counter() - started) * 1000)
            hops.append(found.hops)
        report[turn] = spread(spent)
    return report | {"hops": statistics.mean(hops)}


def bench_reads(graph: SkillGraph, ids: Sequence[str], dice: random.Random) -> dict[str, Any]:
    """What queries, linking and operators read."""
    epoch = graph.get_changes_since(0).epoch
    some = dice.sample(ids, min(len(ids), 1000))
    return {
        "changes, nothing moved": timed(lambda: graph.get_changes_since(epoch), 200),
        "changes from 0": timed(lambda: graph.get_changes_since(0), 5),
        "entries of 10": timed(lambda: graph.get_entries(dice.sample(ids, 10)), 50),
        "entries, all": timed(graph.get_entries, 3),
        "counts": timed(graph.get_counts, 20),
        "links among 10": timed(lambda: graph.get_links_among(dice.sample(ids, 10)), 50),
        "get_link_features of 1,000": timed(lambda: graph.get_link_features(some), 5),
        "links of 200": timed(lambda: graph.get_links(dice.sample(ids, 200)), 5),
        "unlinked, all": timed(lambda: graph.list_awaiting_linking(1 << 40), 5),
    }


def bench_writes(graph: SkillGraph, ids: Sequence[str], dice: random.Random) -> dict[str, Any]:
    """One number; a batch of uses; links of 200 skills taken away and put back."""
    owned = graph.get_owned_links(dice.sample(ids, min(len(ids), 200)))
    started = time.perf_counter()
    graph.replace_links({skill_id: [] for skill_id in owned}, [])
    between = time.perf_counter()
    graph.replace_links(owned, [])
    return {
        "allocate_sequence": timed(lambda: graph.allocate_sequence(1), 50),
        "increment_uses of 10": timed(lambda: graph.increment_uses(dice.sample(ids, 10)), 20),
        "links of 200 taken away": round((between - started) * 1000),
        "links of 200 put back": round((time.perf_counter() - between) * 1000),
        "links": sum(map(len, owned.values())),
    }


def bench_linking(graph: SkillGraph, ids: Sequence[str]) -> dict[str, Any]:
    """Marks of 200 skills served as after an edit of each."""
    linker = Linker(graph)
    started = time.perf_counter()
    linker.relink([(skill_id, 0) for skill_id in ids[:1]])
    between = time.perf_counter()
    linker.relink([(skill_id, 0) for skill_id in ids[:200]])
    return {
        "pool read, s": round(between - started, 2),
        "200 skills linked, s": round(time.perf_counter() - between, 2),
    }


def measure(graph: SkillGraph, queries: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Every figure of one catalog."""
    dice = random.Random(5)
    ids = sorted(skill_id for skill_id, seq in graph.get_changes_since(0).pointers.items() if seq)
    return {
        "reads": bench_reads(graph, ids, dice),
        "diffusion": bench_diffusion(graph, queries),
        "writes": bench_writes(graph, ids, dice),
        "linking": bench_linking(graph, ids),
    }


def fill(settings: ServerSettings, source: SkillGraph) -> float:
    """Copy a catalog into the emptied database; seconds."""
    target = open_catalog(settings)
    empty_catalog(settings)
    started = time.perf_counter()
    copy_graph(source, target)
    target.close()
    return round(time.perf_counter() - started, 1)


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("--url", default="bolt://127.0.0.1:7687")
    parser.add_argument("--password-file", type=Path)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    settings = catalog_settings(options.url, options.password_file, timeout_seconds=60.0)
    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(options.home / "graph.db", folder)
        embedded = SqliteSkillGraph(Path(folder, "graph.db"), writable=True)
        if not options.keep:
            report["copy_s"] = fill(settings, embedded)
        dice = random.Random(9)
        ids = sorted(
            skill_id for skill_id, seq in embedded.get_changes_since(0).pointers.items() if seq
        )
        queries = [seeds_of(embedded, ids, dice) for _ in range(_QUERIES)]
        report["embedded"] = measure(embedded, queries)
        embedded.close()
    served = open_catalog(settings)
    report["neo4j"] = measure(served, queries)
    served.close()
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
