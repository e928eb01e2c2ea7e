"""Section *sizes*: long tasks in libraries of several sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from tests.bench.quality.data import Row, needed_sources, with_skills
from tests.bench.quality.figures import (
    COLUMNS,
    CROSS_VALIDATED,
    Figure,
    Pair,
    mean_figure,
    share,
    wide_table,
)
from tests.bench.quality.plots import Curve, draw_curves
from tests.bench.quality.run import Ranked, Run, embedded_share
from workers.evaluation.metrics import routing_metrics_by_task

METRICS = ("Hit@1", "R@10", "FC@10")

Ids = Mapping[str, Sequence[str]]
Figures = dict[str, Figure]


def measure(run: Run) -> list[dict[str, Any]]:
    """The metrics of long tasks at each size, the smallest first."""
    with run.open_whole() as services:
        whole = len(services.library.refresh().pointers)
        embedded = embedded_share(services)
        tasks = _measure_tasks(run, lambda rows: _ids(run.rank(services, rows)))
    ranked = run.data.predictions("tasks.json")
    if ranked is not None and "left_out" not in tasks:
        rows = [r for r in run.data.labels("dev", "tasks.jsonl") if r["task_id"] in ranked]
        tasks["left_out"] = _task_figures(rows, ranked, CROSS_VALIDATED)
    return [*_measure_parts(run, whole), {"size": whole, "embedded": round(embedded, 3), **tasks}]


def _ids(ranked: Mapping[str, Ranked]) -> Ids:
    return {task: one.ids for task, one in ranked.items()}


def _measure_parts(run: Run, whole: int) -> Iterator[dict[str, Any]]:
    """Long tasks in the skills of their own sources, and with random others around them."""
    kept = needed_sources(run.data.all_labels("tasks.jsonl"))
    drawn: set[int] = set()
    for size in (0, *run.sizes):
        skill_ids = run.draw(kept, size)
        if not kept or len(skill_ids) >= whole or len(skill_ids) in drawn:
            continue
        drawn.add(len(skill_ids))
        with run.open_part(f"draw-{len(skill_ids)}", skill_ids, embedded=False) as services:
            ranked = _measure_tasks(run, lambda rows, at=services: _ids(Run.rank_all(at, rows)))  # type: ignore[misc]  # mypy cannot infer it
            count = len(services.library.refresh().pointers)
            yield {"size": count, "embedded": round(embedded_share(services), 3), **ranked}


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
        for name in METRICS
    }


def _pick(found: Mapping[str, Any], name: str) -> Pair:
    return {c: found[c][name] for c in COLUMNS if name in found.get(c, {})}


def render(found: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """One table with a row per size."""
    rows = [(f"{one['size']:,}", {m: _pick(one, m) for m in METRICS}) for one in found]
    return {"table": wide_table("skills", rows, dict.fromkeys(METRICS, share))}


def plots(found: Sequence[Mapping[str, Any]]) -> dict[str, Callable[[], bytes]]:
    """Each metric by size."""
    curves = [
        Curve(column, [one["size"] for one in found], values, metric)
        for metric in METRICS
        for column in COLUMNS
        if (values := [one[column][metric] for one in found if column in one])
        and len(values) == len(found)
    ]
    x, y = "skills in the library", "mean over long tasks"
    return {"sizes": partial(draw_curves, curves, x, y, log=True, points=True, bars=True)}
