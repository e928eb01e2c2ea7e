"""Section *routing*: is the right skill found, by size of the library and by kind of prompt?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from search.text.query_understanding import understand
from tasks.services import Services
from tests.bench.quality.data import Row, needed_sources, with_skills
from tests.bench.quality.figures import (
    COLUMNS,
    CROSS_VALIDATED,
    Figure,
    mean_figure,
    pair_table,
    share,
    wide_table,
)
from tests.bench.quality.plots import Curve, Series, draw_bars, draw_curves
from tests.bench.quality.run import Ranked, Run, embedded_share
from workers.evaluation.metrics import routing_metrics_by_task
from workers.evaluation.predictions import MAX_RANKED

SIZES = (1_000, 4_000)
TASK_METRICS = ("Hit@1", "R@10", "FC@10")
CUTOFFS = (1, 5, 10, 50)
LENGTHS = (0, 8, 16, 32, 64, 10_000)
LANGUAGES = {"en": "English", "zh": "Chinese", "other": "other languages"}

Ids = Mapping[str, Sequence[str]]
Figures = dict[str, Figure]


def measure(run: Run) -> dict[str, Any]:
    """Long tasks at each size, prompts and near misses in the whole library."""
    with run.open_whole() as services:
        whole = len(services.library.refresh().pointers)
        embedded = embedded_share(services)
        prompts = _measure_prompts(run, services)
        tasks = _measure_tasks(run, lambda rows: _ids(run.rank(services, rows)))
    _add_cross_validated(run, tasks, prompts)
    sizes = [{"size": whole, "embedded": round(embedded, 3), **tasks}]
    return {"sizes": [*_measure_parts(run, whole), *sizes], "prompts": prompts}


def _measure_parts(run: Run, whole: int) -> Iterator[dict[str, Any]]:
    """Long tasks in the skills of their own sources, and with random others around them."""
    kept = needed_sources(run.data.all_labels("tasks.jsonl"))
    drawn: set[int] = set()
    for size in (0, *SIZES):
        skill_ids = run.draw(kept, size)
        if not kept or len(skill_ids) >= whole or len(skill_ids) in drawn:
            continue
        drawn.add(len(skill_ids))
        with run.open_part(f"draw-{len(skill_ids)}", skill_ids, embedded=False) as services:
            ranked = _measure_tasks(run, lambda rows, at=services: _ids(Run.rank_all(at, rows)))
            count = len(services.library.refresh().pointers)
            yield {"size": count, "embedded": round(embedded_share(services), 3), **ranked}


def _ids(ranked: Mapping[str, Ranked]) -> Ids:
    return {task: one.ids for task, one in ranked.items()}


def _measure_tasks(run: Run, rank: Callable[[Sequence[Row]], Ids]) -> dict[str, Figures]:
    """The metrics of long tasks by column."""
    found = {}
    for column in COLUMNS:
        rows = with_skills(run.data.labels(column, "tasks.jsonl"))
        if rows:
            found[column] = _task_figures(rows, rank(rows))
    return found


def _task_figures(rows: Sequence[Row], ranked: Ids, by: str = "") -> Figures:
    """A task is a group of its own: it needs skills of several repositories."""
    needed = {row["task_id"]: row["gt_skill_ids"] for row in rows}
    values = routing_metrics_by_task(needed, ranked)
    return {
        name: mean_figure([values[task][name] for task in needed], list(needed), by)
        for name in TASK_METRICS
    }


def _measure_prompts(run: Run, services: Services) -> dict[str, Any]:
    """The figures of prompts by column."""
    found = {}
    for column in COLUMNS:
        rows = run.data.labels(column, "prompts.jsonl")
        if rows:
            found[column] = _prompt_figures(run, rows, _ids(run.rank(services, rows)))
    return found


def _prompt_figures(run: Run, rows: Sequence[Row], ranked: Ids, by: str = "") -> dict[str, Any]:
    """Recall by rank, and the share found within CUTOFFS by language, length and style."""
    asked = [row for row in rows if row.get("gt_skill_ids") and row["task_id"] in ranked]
    groups = [run.data.repository(row["gt_skill_ids"][0]) for row in asked]
    ranks = [find_rank(row, ranked[row["task_id"]]) for row in asked]
    found: dict[str, Any] = {"kinds": {}, "recall": []}
    for kind, names in _kinds(asked).items():
        for name in names:
            places = [place for place, row in enumerate(asked) if _kind(kind, row) == name]
            if places:
                found["kinds"].setdefault(kind, {})[name] = {
                    f"first {cut}": mean_figure(
                        [float(ranks[place] <= cut) for place in places],
                        [groups[place] for place in places],
                        by,
                    )
                    for cut in CUTOFFS
                }
    found["recall"] = [
        mean_figure([float(rank <= cut) for rank in ranks], groups, by)
        for cut in range(1, MAX_RANKED + 1)
    ]
    near = [row for row in rows if row.get("not_skill_ids") and row["task_id"] in ranked]
    if near:
        owners = [run.data.repository(row["not_skill_ids"][0]) for row in near]
        first = [
            float(any(one in row["not_skill_ids"] for one in ranked[row["task_id"]][:1]))
            for row in near
        ]
        found["near_misses"] = mean_figure(first, owners, by)
    return found


def find_rank(row: Row, ids: Sequence[str]) -> int:
    """The rank of the first right skill, from 1; beyond all ranks if there is none."""
    right = {*row["gt_skill_ids"], *row.get("also", ())}
    return next((rank for rank, one in enumerate(ids, 1) if one in right), MAX_RANKED + 1)


def _kinds(rows: Sequence[Row]) -> dict[str, list[str]]:
    """The names of the parts by kind."""
    return {
        "all": ["all"],
        "language": [LANGUAGES[one] for one in LANGUAGES],
        "length": [_length_name(*pair) for pair in pairwise(LENGTHS)],
        "style": sorted({_kind("style", row) for row in rows}),
    }


def _kind(kind: str, row: Row) -> str:
    if kind == "language":
        return LANGUAGES.get(row.get("lang", ""), LANGUAGES["other"])
    if kind == "length":
        count = len(understand(row["instruction"]).ids)
        return next(_length_name(low, high) for low, high in pairwise(LENGTHS) if count <= high)
    return str(row.get("style", "plain")) if kind == "style" else "all"


def _length_name(low: int, high: int) -> str:
    return f"{low + 1}–{high} terms" if high < LENGTHS[-1] else f"more than {low} terms"


def _add_cross_validated(run: Run, tasks: dict[str, Any], prompts: dict[str, Any]) -> None:
    """Fill the column of what was left out from predictions, where it has no labels of its own."""
    for name, found in (("tasks", tasks), ("prompts", prompts)):
        ranked = run.data.predictions(f"{name}.json")
        if ranked is None or "left_out" in found:
            continue
        rows = [r for r in run.data.labels("dev", f"{name}.jsonl") if r["task_id"] in ranked]
        make = _task_figures if name == "tasks" else _figures_of(run)
        found["left_out"] = make(rows, ranked, CROSS_VALIDATED)


def _figures_of(run: Run) -> Callable[[Sequence[Row], Ids, str], dict[str, Any]]:
    return lambda rows, ranked, by: _prompt_figures(run, rows, ranked, by)


def render(found: Mapping[str, Any]) -> dict[str, str]:
    """The tables."""
    sizes, prompts = found["sizes"], found["prompts"]
    blocks = {
        "sizes": wide_table(
            "skills",
            [(f"{one['size']:,}", {m: _pick(one, m) for m in TASK_METRICS}) for one in sizes],
            dict.fromkeys(TASK_METRICS, share),
        ),
        "embedded": ", ".join(f"{one['embedded']:.0%} of {one['size']:,}" for one in sizes),
        "whole": f"{sizes[-1]['size']:,}",
        "near_misses": pair_table(
            "near misses",
            [("the skill that should not trigger comes first", _pick(prompts, "near_misses"))],
        ),
        "recall": pair_table(
            "among the first",
            [
                (str(rank), {c: prompts[c]["recall"][rank - 1] for c in COLUMNS if c in prompts})
                for rank in (1, 2, 3, 5, 10, 20, 50, 100)
            ],
        ),
    }
    metrics = [f"first {cut}" for cut in CUTOFFS]
    for kind in ("language", "length", "style"):
        blocks[kind] = wide_table(
            "prompts",
            [
                (name, {metric: _pick_kind(prompts, kind, name, metric) for metric in metrics})
                for name in _names(prompts, kind)
            ],
            dict.fromkeys(metrics, share),
        )
    return blocks


def _pick(found: Mapping[str, Any], name: str) -> Figures:
    return {c: found[c][name] for c in COLUMNS if name in found.get(c, {})}


def _names(prompts: Mapping[str, Any], kind: str) -> list[str]:
    return list(dict.fromkeys(name for c in prompts for name in prompts[c]["kinds"].get(kind, {})))


def _pick_kind(prompts: Mapping[str, Any], kind: str, name: str, metric: str) -> Figures:
    parts = {c: prompts[c]["kinds"].get(kind, {}).get(name, {}) for c in COLUMNS if c in prompts}
    return {c: part[metric] for c, part in parts.items() if metric in part}


def plots(found: Mapping[str, Any]) -> dict[str, bytes]:
    """Recall by rank, by query length and by size of the library."""
    prompts = found["prompts"]
    recall = [
        Curve(column, list(range(1, MAX_RANKED + 1)), prompts[column]["recall"])
        for column in COLUMNS
        if column in prompts
    ]
    lengths = _names(prompts, "length")
    bars = [
        Series(
            column, metric, [_pick_kind(prompts, "length", n, metric).get(column) for n in lengths]
        )
        for column in COLUMNS
        if column in prompts
        for metric in ("first 1", "first 10")
    ]
    sizes = [
        Curve(column, [one["size"] for one in found["sizes"]], values, metric)
        for metric in TASK_METRICS
        for column in COLUMNS
        if (values := [one[column][metric] for one in found["sizes"] if column in one])
        and len(values) == len(found["sizes"])
    ]
    return {
        "recall": draw_curves(recall, "rank", "prompts with the right skill so far", log=True),
        "length": draw_bars(bars, lengths, "share of the prompts"),
        "sizes": draw_curves(sizes, "skills in the library", "long tasks", log=True, points=True),
    }
