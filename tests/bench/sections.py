"""Measure the search of sections in an embedded library.

    python -m tests.bench.sections HOME

HOME  a library whose sections are embedded, in whole or in part; it is not changed

Prints seconds and memory to load, and the milliseconds of processor time of a search and of the
cosines of given skills (p50, p95); the share of the exact first 300 skills that the binary codes
find.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from search.local.index import LocalSearchIndex
from search.protocol import Filters, SectionSearch, Vector

ANY = Filters()


def open_index(home: Path) -> LocalSearchIndex:
    """Open the index of a library for reading, whatever its model."""
    path = home / "index"
    with sqlite3.connect(f"file:{path / 'revisions.sqlite'}?mode=ro", uri=True) as connection:
        meta = dict(connection.execute("SELECT name, value FROM meta"))
    return LocalSearchIndex(path, meta["model"], int(meta["dimension"]), writable=False)


def resident() -> float:
    """Return this process's memory in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def timed(name: str, queries: Vector, work: Callable[[Vector], object]) -> None:
    """Print p50 and p95 of the processor time of work on each query."""
    spent = []
    for query in queries:
        started = time.thread_time()
        work(query)
        spent.append(1e3 * (time.thread_time() - started))
    low, high = np.percentile(spent, [50, 95])
    print(f"{name:32} {low:6.2f} {high:6.2f} ms")


def speed(home: Path) -> None:
    """Print the figures."""
    index = open_index(home)
    keys = index.list_keys()
    generator = np.random.default_rng(7)
    some = [keys[place] for place in generator.permutation(len(keys))]
    stored = [rows for rows in index.get_section_vectors(some[:400]).values() if len(rows)]
    queries = np.concatenate(stored)
    queries = queries[generator.permutation(len(queries))[:100]]
    queries += 0.8 * generator.normal(size=queries.shape) / np.sqrt(queries.shape[1])
    queries = (queries / np.linalg.norm(queries, axis=1, keepdims=True)).astype(np.float32)
    before, started = resident(), time.thread_time()
    index.search_many([SectionSearch(queries[0], 1, ANY)])
    print(f"loaded in {time.thread_time() - started:.2f} s, {resident() - before:.0f} MB")
    for limit in (100, 300, 600):
        timed(
            f"search, {limit} skills",
            queries,
            lambda query, limit=limit: index.search_many([SectionSearch(query, limit, ANY)]),  # type: ignore[misc]  # mypy cannot infer it
        )
    for count in (300, 700):
        part = some[:count]
        timed(
            f"cosines, {count} skills",
            queries,
            partial(index.get_section_cosines, part),
        )
    found = []
    for query in queries[:40]:
        exact = index.get_section_cosines(keys, query)
        best = {key.skill_id for key in sorted(exact, key=lambda key: -exact[key])[:300]}
        hits = index.search_many([SectionSearch(query, 300, ANY)])[0]
        found.append(len(best & {hit.key.skill_id for hit in hits}) / len(best))
    print(f"of the exact first 300 skills: {np.mean(found):.4f}, worst query {min(found):.3f}")
    index.close()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    speed(Path(sys.argv[1]))
