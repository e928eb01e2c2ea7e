"""Section *routing*: is the right skill found, by kind of prompt?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from search.text.query_understanding import understand
from tasks.services import Services
from tests.bench.quality.data import Row
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
from workers.evaluation.predictions import MAX_RANKED

CUTOFFS = (1, 5, 10, 50)
LENGTHS = (0, 8, 16, 32, 64, 10_000)
LEAST_SHOWN = 5
"""Prompts that a length needs to be in the plot; the table has them all."""
LANGUAGES = {"en": "English", "zh": "Chinese", "other": "other languages"}

Ids = Mapping[str, Sequence[str]]
Figures = dict[str, Figure]


def measure(run: Run) -> dict[str, Any]:
    """Prompts and near misses in the whole library."""
    with run.open_whole() as services:
        found: dict[str, Any] = {
            "size": len(services.library.refresh().pointers),
            "embedded": round(embedded_share(services), 3),
            "prompts": _measure_prompts(run, services),
        }
    _add_cross_validated(run, found["prompts"])
    return found


def _ids(ranked: Mapping[str, Ranked]) -> Ids:
    return {task: one.ids for task, one in ranked.items()}


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


def _add_cross_validated(run: Run, found: dict[str, Any]) -> None:
    """Fill the column of what was left out from predictions, where it has no labels of its own."""
    ranked = run.data.predictions("prompts.json")
    if ranked is not None and "left_out" not in found:
        rows = [r for r in run.data.labels("dev", "prompts.jsonl") if r["task_id"] in ranked]
        found["left_out"] = _prompt_figures(run, rows, ranked, CROSS_VALIDATED)


def render(found: Mapping[str, Any]) -> dict[str, str]:
    """The tables."""
    prompts = found["prompts"]
    blocks = {
        "embedded": f"{found['embedded']:.0%}",
        "whole": f"{found['size']:,}",
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


def _count(prompts: Mapping[str, Any], length: str) -> int:
    """Cases of a length, in the column that has most."""
    pair = _pick_kind(prompts, "length", length, f"first {CUTOFFS[0]}")
    return max(figure["cases"] for figure in pair.values())


def plots(found: Mapping[str, Any]) -> dict[str, Callable[[], bytes]]:
    """Recall by rank and by query length."""
    prompts = found["prompts"]
    recall = [
        Curve(column, list(range(1, MAX_RANKED + 1)), prompts[column]["recall"])
        for column in COLUMNS
        if column in prompts
    ]
    names = _names(prompts, "length")
    lengths = [name for name in names if _count(prompts, name) >= LEAST_SHOWN] or names
    bars = [
        Series(
            column, metric, [_pick_kind(prompts, "length", n, metric).get(column) for n in lengths]
        )
        for column in COLUMNS
        if column in prompts
        for metric in ("first 1", "first 10")
    ]
    ticks = [name.removesuffix(" terms") for name in lengths]
    x, y = "distinct terms of the prompt", "share of the prompts"
    right = "prompts with the right skill so far"
    return {
        "recall": partial(draw_curves, recall, "rank", right, log=True),
        "length": partial(draw_bars, bars, ticks, x, y),
    }
