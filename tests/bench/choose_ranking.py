"""Choose the constants of ranking and diffusion over many draws of a library.

usage: choose_ranking.py HOME TASKS.jsonl[,TASKS.jsonl …] [SIZE:DRAWS ...]

HOME     a library, searchable and linked
TASKS    one object a line: task_id, instruction, gt_skill_ids; each file is a collection
SIZE     so many skills in addition to those of the sources of the needed ones; by default 0:1 811:4
         1811:2 3811:2 7811:2 and all others

One library has its own accidents, so each choice is ranked over random parts of it: statistics,
candidates and links are those of the part. Prints recall@10 and full coverage@10 by size for each
change of one constant, what is reached when each task is ranked with what was best on the others,
and, with several collections, when each is ranked with what was best on the others.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from config.load_settings import load_settings
from config.settings import DiffusionSettings
from graph.records import Adjacency
from search.packed_records import PackedRecords
from search.protocol import (
    FilterSearch,
    Hit,
    LexicalSearch,
    Search,
    SearchIndex,
    SectionSearch,
    Vector,
    VectorSearch,
)
from search.scoring.cosine_scale import CosineScale, measure_cosine_scale
from search.scoring.library_statistics import LibraryStatistics
from search.scoring.score_candidates import score_candidates
from search.scoring.weights import ScoringWeights
from search.text.query_understanding import Understanding, understand
from search.text.script_balance import balance_scripts
from skills.events import QueryAsked
from skills.record import RevisionKey
from tasks.query.context import QueryContext
from tasks.query.diffuse import diffuse
from tasks.query.process_state.pointers import Pointers
from tasks.query.process_state.published_library import LibrarySnapshot
from tasks.query.ranking import Ranking, TaskQuery, build_ranking
from tasks.query.retrieve import retrieve
from tasks.services import Services
from workers.backend.embedded import EmbeddedBackend
from workers.evaluation.predictions import read_jsonl

Floats = npt.NDArray[np.float64]
SIZES = ("0:1", "811:4", "1811:2", "3811:2", "7811:2")
OFF = DiffusionSettings(weight=0.0)
ON = DiffusionSettings()

WEIGHTS: dict[str, Mapping[str, Any]] = {
    "in force": {},
    "names 0": {"name_coverage": (0.0, 0.0)},
    "names x 1.5": {"name_coverage": (0.15, 0.3)},
    "exact name 0": {"exact_name": 0.0},
    "description 0": {"description": 0.0},
    "description x 2": {"description": 0.8},
    "examples 0": {"examples": 0.0},
    "examples x 2": {"examples": 0.8},
    "exclusion 0": {"exclusion": 0.0},
    "exclusion x 2": {"exclusion": 60.0},
    "bigrams 0": {"bigrams": (0.0, 0.0)},
    "bigrams short .05": {"bigrams": (0.05, 0.05)},
    "bigrams x 2": {"bigrams": (0.24, 0.1)},
    "hub 0": {"hub": 0.0},
    "hub at any size": {"hub_rivals": 0.0},
    "hub rivals 4000": {"hub_rivals": 4000.0},
    "dense 0": {"dense_description": (0.0, 0.0), "dense_head": (0.0, 0.0)},
    "dense short .2": {"dense_description": (0.2, 0.1), "dense_head": (0.2, 0.0)},
    "dense short .6": {"dense_description": (0.6, 0.1), "dense_head": (0.6, 0.0)},
    "dense long .4": {"dense_description": (0.35, 0.4)},
    "k long 2": {"k_long": 2.0},
    "k long 5": {"k_long": 5.0},
    "k short 1": {"k_short": 1.0},
    "k short 3": {"k_short": 3.0},
    "body short 1": {"body_short": 1.0},
    "body short 2": {"body_short": 2.0},
    "slots 0": {"slots": 0},
}
_CHANGES: tuple[Mapping[str, float], ...] = (
    {},
    *({"weight": weight} for weight in (1, 2, 3, 5, 6, 8, 10)),
    *({"restart": restart} for restart in (0.2, 0.35, 0.65, 0.8)),
    *({"seeds": seeds} for seeds in (2, 3, 8, 10)),
    *({"power": power} for power in (1, 2, 6)),
    *({"weight": weight, "seeds": seeds} for weight in (2, 6) for seeds in (3, 8)),
    *({"weight": weight, "restart": restart} for weight in (2, 6) for restart in (0.2, 0.8)),
)
DIFFUSION: dict[str, DiffusionSettings] = {"off": OFF} | {
    ", ".join(f"{name} {value:g}" for name, value in change.items()) or "in force": (
        ON.model_copy(update=change)
    )
    for change in _CHANGES
}


@dataclass(frozen=True)
class Task:
    """A task with what does not depend on the draw."""

    collection: str
    text: str
    needed: frozenset[str]
    understanding: Understanding
    vector: Vector | None


class WideIndex:
    """The hits of a library's index, cut to the skills of a draw."""

    def __init__(self, index: SearchIndex, factor: int) -> None:
        self._index = index
        self._factor = factor
        self._cache: dict[tuple[Any, ...], list[Hit]] = {}
        self.ids: frozenset[str] = frozenset()

    def search_many(self, searches: Sequence[Search]) -> list[list[Hit]]:
        """The best of the draw for each search."""
        return [self._search(one) for one in searches]

    def _search(self, one: Search) -> list[Hit]:
        if isinstance(one, FilterSearch):
            return self._index.search_many([one])[0]
        key = _get_key(one)
        if key not in self._cache:
            wide: Search = replace(one, limit=one.limit * self._factor)
            self._cache[key] = self._index.search_many([wide])[0]
        return self._cut(key, one.limit)

    def _cut(self, key: tuple[Any, ...], limit: int) -> list[Hit]:
        return [hit for hit in self._cache[key] if hit.key.skill_id in self.ids][:limit]


def _get_key(one: LexicalSearch | VectorSearch | SectionSearch) -> tuple[Any, ...]:
    if isinstance(one, LexicalSearch):
        return ("words", *sorted(one.terms.items()))
    if isinstance(one, SectionSearch):
        return ("sections", one.vector.tobytes())
    return ("vector", one.vector_field, one.vector.tobytes())


class Draw(NamedTuple):
    """A part of the library, and the candidates of each task in it."""

    view: LibrarySnapshot
    candidates: list[tuple[PackedRecords, npt.NDArray[np.float64]]]
    scale: CosineScale


def draw(
    services: Services, wide: WideIndex, tasks: Sequence[Task], keys: Sequence[RevisionKey]
) -> Draw:
    """Statistics and candidates of a part of the library."""
    wide.ids = frozenset(key.skill_id for key in keys)
    services.library.refresh()
    statistics = LibraryStatistics(services.library.records.read(keys))
    view = LibrarySnapshot(Pointers({key.skill_id: key.seq for key in keys}), statistics)
    searched = replace(services, index=cast(SearchIndex, wide))
    found = []
    for task in tasks:
        context = QueryContext.create(searched, QueryAsked(task=task.text), apply_policy=False)
        keys = retrieve(context, _query(view, task)).keys
        found.append(_with_cosines(services, task, keys))
    return Draw(view, found, measure_cosine_scale(services.encoder.get()))


def _with_cosines(
    services: Services, task: Task, keys: Sequence[RevisionKey]
) -> tuple[PackedRecords, npt.NDArray[np.float64]]:
    pairs = services.index.get_skill_vectors(keys) if task.vector is not None else {}
    records = services.library.records.pack(keys)
    cosines = np.full((len(records), 2), np.nan)
    for at, key in enumerate(records.keys):
        pair = pairs.get(key)
        if task.vector is not None and pair is not None and pair.any():
            cosines[at] = pair @ task.vector
    return records, cosines


def ranked(task: Task, part: Draw, at: int, weights: ScoringWeights) -> Ranking:
    """The candidates of one task, scored."""
    records, cosines = part.candidates[at]
    query = _query(part.view, task)
    scored = score_candidates(
        query.understanding,
        records,
        part.view.statistics,
        weights,
        scale=part.scale,
        cosines=cosines,
    )
    return build_ranking(query, scored)


def _query(view: LibrarySnapshot, task: Task) -> TaskQuery:
    return TaskQuery(view, balance_scripts(task.understanding, view.statistics), task.vector)


def diffused(
    services: Services, ranking: Ranking, part: Draw, settings: DiffusionSettings
) -> Ranking:
    """Over the links within the draw."""
    pointers = part.view.pointers

    def rows(ids: Sequence[str]) -> dict[str, Adjacency]:
        whole = services.graph.get_adjacency(ids, settings.fan_out)
        return {name: _within(row, pointers) for name, row in whole.items()}

    return diffuse(ranking, settings, rows, pointers)


def _within(row: Adjacency, pointers: Mapping[str, int]) -> Adjacency:
    kept = tuple(one for one in row.neighbours if one.skill_id in pointers)
    totals: dict[Any, float] = {}
    for one in kept:
        totals[one.type, one.forward] = totals.get((one.type, one.forward), 0.0) + one.weight
    return Adjacency(kept, totals)


def figures(task: Task, ranking: Ranking) -> tuple[float, float, float]:
    """Hit@1, R@10, FC@10."""
    first = [hit.key.skill_id for hit in ranking.hits[:10]]
    found = len(task.needed.intersection(first)) / len(task.needed)
    return float(first[:1] != [] and first[0] in task.needed), found, float(found == 1)


def report(table: dict[str, Floats], sizes: Sequence[int], collections: Sequence[str]) -> None:
    """table: for each choice (draws, tasks, 3). Each choice by size, then left out by task and by
    collection."""
    names = sorted(set(sizes))
    print(f"{'':>22}  " + "  ".join(f"{size:^17}" for size in names) + "  all")
    for name, values in table.items():
        cells = []
        for size in names:
            rows = [place for place, one in enumerate(sizes) if one == size]
            cells.append("/".join(f"{x:.3f}" for x in values[rows].mean((0, 1))))
        print(f"{name:>22}  " + "  ".join(cells) + f"  {values.mean():.4f}")
    every = np.stack(list(table.values()))
    held = np.zeros(every.shape[1:])
    for at in range(every.shape[2]):
        others = np.delete(every, at, axis=2).mean((1, 2, 3))
        held[:, at] = every[int(others.argmax()), :, at]
    print(f"{'left out':>22}  " + "/".join(f"{x:.3f}" for x in held.mean((0, 1))) + " over all")
    for name in sorted(set(collections)) if len(set(collections)) > 1 else ():
        inside = np.array([one == name for one in collections])
        # The others count alike, however many tasks they have.
        means = [
            every[:, :, np.array([one == other for one in collections])].mean((1, 2, 3))
            for other in sorted(set(collections) - {name})
        ]
        best = int(np.mean(means, axis=0).argmax())
        values = every[best][:, inside].mean((0, 1))
        in_force = every[0][:, inside].mean((0, 1))
        print(
            f"{name:>22}  "
            + "/".join(f"{x:.3f}" for x in in_force)
            + f" in force; by the other collections {list(table)[best]}: "
            + "/".join(f"{x:.3f}" for x in values)
        )


def parts(
    services: Services, tasks: Sequence[Task], sizes: Sequence[str]
) -> Iterable[tuple[int, list[RevisionKey]]]:
    """Random parts that keep every skill of the sources of the needed ones."""
    pointers = services.library.refresh().pointers
    keys = [RevisionKey(name, seq) for name, seq in sorted(pointers.items())]
    sources = {name.partition(":")[0] for task in tasks for name in task.needed}
    kept = [key for key in keys if key.skill_id.partition(":")[0] in sources]
    others = [key for key in keys if key.skill_id.partition(":")[0] not in sources]
    for size, _, draws in (one.partition(":") for one in sizes):
        for seed in range(int(draws)):
            chosen = np.random.default_rng(seed).choice(len(others), int(size), replace=False)
            yield int(size), kept + [others[place] for place in sorted(chosen.tolist())]
    yield len(others), keys


def main(argv: Sequence[str]) -> int:
    """Rank every draw with every choice; print."""
    if len(argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    backend = EmbeddedBackend(load_settings(Path(argv[1])), writable=False)
    services = backend.services
    tasks = [
        task
        for file in map(Path, argv[2].split(","))
        for row in read_jsonl(file, ("instruction",))
        if (task := _task(services, file.stem, row)).needed
    ]
    collections = [task.collection for task in tasks]
    wide = WideIndex(services.index, 30)
    weights = {name: replace(ScoringWeights(), **change) for name, change in WEIGHTS.items()}
    table: dict[str, list[Any]] = {}
    sizes = []
    for size, keys in parts(services, tasks, argv[3:] or SIZES):
        part = draw(services, wide, tasks, keys)
        sizes.append(size)
        for at, task in enumerate(tasks):
            for name, chosen in weights.items():
                ranking = ranked(task, part, at, chosen)
                table.setdefault(name, []).append(figures(task, ranking))
                if name == "in force":
                    for other, settings in DIFFUSION.items():
                        there = figures(task, diffused(services, ranking, part, settings))
                        table.setdefault(f"diffusion {other}", []).append(there)
    backend.stop()
    shaped = {name: np.array(rows).reshape(-1, len(tasks), 3) for name, rows in table.items()}
    report({name: shaped[name] for name in WEIGHTS}, sizes, collections)
    report({name: shaped[f"diffusion {name}"] for name in DIFFUSION}, sizes, collections)
    return 0


def _task(services: Services, collection: str, row: Mapping[str, Any]) -> Task:
    understanding = understand(row["instruction"])
    encoder = services.encoder.get()
    known = understanding.language in encoder.languages
    vector = encoder.encode_queries([understanding.text])[0] if known else None
    needed = frozenset(row.get("gt_skill_ids", ()))
    return Task(collection, row["instruction"], needed, understanding, vector)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
