"""Section *passages*: sufficiency against token reduction of lines selected from a given skill."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from skills.token_count import count_tokens
from tasks.services import Services
from tests.bench.quality.data import MISSES, Row
from tests.bench.quality.figures import (
    COLUMNS,
    CROSS_VALIDATED,
    DEV_ONLY,
    TITLES,
    Figure,
    cell,
    count_cell,
    make_figure,
    mean_figure,
    table,
)
from tests.bench.quality.plots import Curve, draw_curves
from tests.bench.quality.run import Run
from workers.evaluation.metrics import line_set
from workers.evaluation.passages import select_lines
from workers.evaluation.predictions import read_published_revisions

MEASURES = ("sufficient", "reduction")
METHODS = ("mmr", "topk", "graph", "chunks")

Ranges = Sequence[Sequence[int]]
Selected = Mapping[str, Ranges]


def measure(run: Run) -> dict[str, Any]:
    """Each setting and baseline by column and collection."""
    skill_ids = {row["skill_id"] for row in run.data.all_labels("queries.jsonl")}
    roles = {name for column in COLUMNS for name in run.data.roles(column)}
    found: dict[str, Any] = {}
    with run.open_part("labelled", sorted(skill_ids | roles), embedded=True) as services:
        for column in COLUMNS:
            rows = run.data.labels(column, "queries.jsonl")
            for method, setting, chosen in _selections(services, rows):
                place = found.setdefault(method, {}).setdefault(setting, {})
                place[column] = _figures(run, services, rows, chosen, "")
        predicted = run.data.predictions("passages.json")
        if predicted is not None and not run.data.labels("left_out", "queries.jsonl"):
            for setting, chosen in predicted.items():
                rows = [
                    r for r in run.data.labels("dev", "queries.jsonl") if r["query_id"] in chosen
                ]
                place = found.setdefault("f", {}).setdefault(setting, {})
                place["left_out"] = _figures(run, services, rows, chosen, CROSS_VALIDATED)
        found["default"] = f"{services.settings.passages.miss:g}"
    return found


def _selections(services: Services, rows: Sequence[Row]) -> Iterator[tuple[str, str, Selected]]:
    """(method, setting, ranges by query id); the default setting is among those of method f."""
    asked = [dict(row) for row in rows]
    if not asked:
        return
    default = services.settings.passages.miss
    for miss in sorted({*MISSES, default}):
        yield "f", f"{miss:g}", _select(services, asked, "f", miss)
    for method in METHODS:
        yield method, "", _select(services, asked, method, default)


def _select(
    services: Services, rows: Sequence[dict[str, Any]], method: str, miss: float
) -> Selected:
    chosen = select_lines(services, rows, method, miss, ())
    return {one.query["query_id"]: one.ranges for one in chosen}


def _figures(
    run: Run, services: Services, rows: Sequence[Row], chosen: Selected, by: str
) -> dict[str, dict[str, Figure]]:
    """Sufficiency and reduction over all queries and by collection, resampled by skill."""
    revisions = read_published_revisions(services, [row["skill_id"] for row in rows])
    parts: dict[str, list[tuple[str, float, float, float]]] = {}
    for row in rows:
        skill_id = row["skill_id"]
        parsed = revisions[skill_id].parsed
        inside = line_set(chosen[row["query_id"]])
        wanted = {n for n in line_set(row["required"]) if parsed.lines[n - 1].strip()}
        body = range(parsed.body_line, len(parsed.lines) + 1)
        tokens = {line: float(count_tokens(parsed.lines[line - 1])) for line in body}
        kept = sum(count for line, count in tokens.items() if line in inside)
        outcome = (skill_id, float(wanted <= inside), kept, sum(tokens.values()))
        for name in ("all", run.data.collection(skill_id)):
            parts.setdefault(name, []).append(outcome)
    return {
        name: {
            "sufficient": mean_figure(
                [one[1] for one in outcomes], [one[0] for one in outcomes], by
            ),
            "reduction": make_figure(
                np.array([one[2:] for one in outcomes]),
                [one[0] for one in outcomes],
                lambda sums: 1 - sums[:, 0] / sums[:, 1],
                by,
            ),
        }
        for name, outcomes in parts.items()
    }


def render(found: Mapping[str, Any]) -> dict[str, str]:
    """The curve as a table, by collection at the default setting, and the baselines.

    Baselines have no weights to fit: where nothing is left out they have one column.
    """
    rows, baselines = [], []
    for setting, columns in sorted(found["f"].items(), key=lambda pair: float(pair[0])):
        default = setting == found["default"]
        rows += _rows(f"{setting} (default)" if default else setting, columns, alone=not default)
    for method in METHODS:
        baselines += _rows(f"`{method}`", found.get(method, {}).get("", {}))
    header = ("queries", "cases (groups)")
    both = [f"{TITLES[c]}: {m}" for c in COLUMNS for m in MEASURES]
    one_column = all(row[-1] == DEV_ONLY for row in baselines)
    if one_column:
        baselines = [row[: -len(MEASURES)] for row in baselines]
    return {
        "curve": table(("`passages.miss`", *header, *both), rows),
        "baselines": table(("method", *header, *(MEASURES if one_column else both)), baselines),
    }


def _rows(name: str, columns: Mapping[str, Any], alone: bool = False) -> list[list[str]]:
    """A row per collection; `alone`: of all queries alone."""
    names = list(dict.fromkeys(one for column in columns.values() for one in column))
    names = names[:1] if alone else names
    found = []
    for collection in names:
        of_it = {c: part[collection] for c, part in columns.items() if collection in part}
        counted = count_cell({c: figures["sufficient"] for c, figures in of_it.items()})
        cells = [name, collection, counted]
        for column in COLUMNS:
            cells += [cell(of_it.get(column, {}).get(measured)) for measured in MEASURES]
        if "left_out" not in columns:
            cells[-2:] = [DEV_ONLY, DEV_ONLY]
        found.append(cells)
    return found


def plots(found: Mapping[str, Any]) -> dict[str, Callable[[], bytes]]:
    """Sufficiency against reduction by collection and column."""
    curves = []
    settings = list(found["f"].values())
    names = list(dict.fromkeys(n for columns in settings for c in columns.values() for n in c))
    for name in [one for one in names if one != "all"] or names:
        for column in COLUMNS:
            parts = [c[column][name] for c in settings if name in c.get(column, {})]
            parts.sort(key=lambda part: part["reduction"]["value"])
            if parts:
                at = [part["reduction"]["value"] for part in parts]
                curves.append(Curve(column, at, [part["sufficient"] for part in parts], name))
    label = "queries with every required line"
    return {"passages": partial(draw_curves, curves, "token reduction", label, points=True)}
