"""Measure the search of sections in an embedded library, and what it adds to the candidates.

    python -m tests.bench.sections speed HOME
    python -m tests.bench.sections recall HOME PROMPTS.jsonl

HOME     a library whose sections are embedded, in whole or in part; it is not changed
PROMPTS  objects with `instruction` and `gt_skill_ids`, as `eval routing` reads them

`speed`: seconds and memory to load, and the milliseconds of processor time of a search and of the
cosines of given skills (p50, p95); the share of the exact first 300 skills that the binary codes
find. `recall`: the share of prompts whose skill is among the first of each source of candidates,
and of their union, with its 95% interval over draws of whole skills. Where a part of a library is
embedded, places by sections are scaled to the whole.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from config.load_settings import load_settings
from search.local.index import LocalSearchIndex
from search.models.load_models import load_encoder
from search.protocol import Filters, LexicalSearch, Search, SectionSearch, Vector, VectorSearch
from search.scoring.library_statistics import LibraryStatistics
from search.text.query_understanding import Understanding, understand
from workers.evaluation.predictions import read_jsonl

ANY = Filters()
DEPTH = 1000
ENGINE_TERMS = 50
LIMITS = (50, 150, 300)
MIXES = ((300, 300, 0), (300, 150, 0), (300, 150, 150), (300, 150, 300), (300, 0, 300))


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
    """Print what `speed` measures."""
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


def engine_terms(task: Understanding, statistics: LibraryStatistics) -> dict[str, float]:
    """Return the heaviest terms that the library knows, as retrieval selects them."""
    known = statistics.document_frequencies(task.ids) > 0
    mass = np.where(known, task.weights * statistics.idf(task.ids), 0.0)
    heaviest = np.argsort(-mass, kind="stable")[:ENGINE_TERMS].tolist()
    return {task.terms[at]: float(task.weights[at]) for at in heaviest if known[at]}


def recall(home: Path, prompts: Path) -> None:
    """Print what `recall` measures."""
    index, encoder = open_index(home), load_encoder(load_settings(home).encoder)
    keys = index.list_keys()
    statistics = LibraryStatistics(index.open_records().read(keys))
    embedded = len(index.get_section_vectors(keys))
    rows = [row for row in read_jsonl(prompts, ("instruction",)) if row.get("gt_skill_ids")]
    tasks = [understand(row["instruction"]) for row in rows]
    places = np.full((len(rows), 4), np.inf)
    vectors = encoder.encode_queries([task.text for task in tasks])
    for at, (row, task, vector) in enumerate(zip(rows, tasks, vectors, strict=True)):
        searches: list[Search] = [LexicalSearch(engine_terms(task, statistics), DEPTH, ANY)]
        if task.language in encoder.languages:
            searches += [VectorSearch(vector, 0, DEPTH, ANY), VectorSearch(vector, 1, DEPTH, ANY)]
            searches.append(SectionSearch(vector, DEPTH, ANY))
        needed = {*row["gt_skill_ids"], *row.get("also", ())}
        for source, hits in enumerate(index.search_many(searches)):
            found = [n for n, hit in enumerate(hits) if hit.key.skill_id in needed]
            places[at, source] = found[0] if found else np.inf
    places[:, 3] *= len(keys) / embedded
    skills = np.unique([row["gt_skill_ids"][0] for row in rows], return_inverse=True)[1]
    for limit in LIMITS:
        for source, name in enumerate(("words", "description", "head", "sections")):
            print(f"{name:12} first {limit:4}  {interval(places[:, source] < limit, skills)}")
    for words, skill, section in MIXES:
        hit: Any = (places < np.array([words, skill, skill, section])).any(axis=1)
        print(f"words {words}, skill vectors {skill}, sections {section}: {interval(hit, skills)}")
    index.close()


def interval(hit: npt.NDArray[np.bool_], skills: npt.NDArray[np.intp]) -> str:
    """Return the mean with its 95% interval over draws of whole skills."""
    totals, sizes = np.bincount(skills, weights=hit), np.bincount(skills)
    draws = np.random.default_rng(1).integers(len(sizes), size=(2000, len(sizes)))
    low, high = np.percentile(totals[draws].sum(1) / sizes[draws].sum(1), [2.5, 97.5])
    return f"{hit.mean():.3f} [{low:.3f}, {high:.3f}]"


if __name__ == "__main__":
    if sys.argv[1:2] == ["speed"] and len(sys.argv) == 3:
        speed(Path(sys.argv[2]))
    elif sys.argv[1:2] == ["recall"] and len(sys.argv) == 4:
        recall(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        raise SystemExit(__doc__)
