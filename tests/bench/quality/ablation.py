"""Section *ablation*: what each stage of ranking contributes in the whole library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.bench.quality.data import Row, spaced, with_skills
from tests.bench.quality.figures import (
    COLUMNS,
    DEV_ONLY,
    TITLES,
    Figure,
    mean_figure,
    signed,
    table,
)
from tests.bench.quality.routing import find_rank
from tests.bench.quality.run import Run, rank_task
from workers.evaluation.ablation import ALL_STAGES, configurations
from workers.evaluation.metrics import routing_metrics_by_task

PROMPTS = 100
"""Prompts that are ranked without each stage: evenly spaced, since each is ranked a dozen times."""
NEED_MODEL = frozenset({"rewrite", "select", "rerank"})
"""Stages that do nothing without a model that is not configured by default."""
MEASURES = ("tasks Hit@1", "tasks FC@10", "prompts first 1", "prompts first 10")

Values = dict[str, dict[str, float]]


def measure(run: Run) -> dict[str, Any]:
    """The difference that switching off each stage makes, paired by task or prompt."""
    found: dict[str, Any] = {}
    with run.open_whole() as services:
        for column in COLUMNS:
            tasks = with_skills(run.data.labels(column, "tasks.jsonl"))
            prompts = spaced(with_skills(run.data.labels(column, "prompts.jsonl")), PROMPTS)
            base: Values = {}
            for name, without in configurations(bundles=False):
                if NEED_MODEL & set(without) and len(without) == 1:
                    continue
                rows = [*tasks, *prompts]
                ids = {
                    row["task_id"]: rank_task(services, row["instruction"], without).ids
                    for row in rows
                }
                values = _values(tasks, prompts, ids)
                base = base or values
                if name != ALL_STAGES and any(values.values()):
                    found.setdefault(column, {})[name] = _differences(
                        values, base, _groups(run, tasks, prompts)
                    )
    return found


def _values(
    tasks: Sequence[Row], prompts: Sequence[Row], ids: Mapping[str, Sequence[str]]
) -> Values:
    """Each measure by task or prompt."""
    rows = routing_metrics_by_task({r["task_id"]: r["gt_skill_ids"] for r in tasks}, ids)
    ranks = {row["task_id"]: find_rank(row, ids[row["task_id"]]) for row in prompts}
    return {
        "tasks Hit@1": {task: row["Hit@1"] for task, row in rows.items()},
        "tasks FC@10": {task: row["FC@10"] for task, row in rows.items()},
        "prompts first 1": {name: float(rank <= 1) for name, rank in ranks.items()},
        "prompts first 10": {name: float(rank <= 10) for name, rank in ranks.items()},
    }


def _groups(run: Run, tasks: Sequence[Row], prompts: Sequence[Row]) -> dict[str, str]:
    return {row["task_id"]: row["task_id"] for row in tasks} | {
        row["task_id"]: run.data.repository(row["gt_skill_ids"][0]) for row in prompts
    }


def _differences(values: Values, base: Values, groups: Mapping[str, str]) -> dict[str, Any]:
    return {
        measured: mean_figure(
            [value - base[measured][name] for name, value in found.items()],
            [groups[name] for name in found],
        )
        for measured, found in values.items()
        if found
    }


def render(found: Mapping[str, Any]) -> dict[str, str]:
    """One table by column of the page."""
    header = ("without", "", *MEASURES)
    names = list(dict.fromkeys(name for column in found.values() for name in column))
    rows = []
    for name in names:
        for column in COLUMNS:
            if name in found.get(column, {}):
                figures = found[column][name]
                title = TITLES[column] if "left_out" in found else DEV_ONLY
                label = name.removeprefix("without ")
                rows.append([label, title, *(signed(figures.get(one)) for one in MEASURES)])
    return {"table": table(header, rows), "cases": _count_cases(found)}


def _count_cases(found: Mapping[str, Any]) -> str:
    """How many tasks and prompts each column has, as text."""
    parts = []
    for column in COLUMNS:
        figures: Mapping[str, Figure] = next(iter(found.get(column, {}).values()), {})
        counts = {name.split()[0]: figure["cases"] for name, figure in figures.items()}
        if counts:
            text = " and ".join(f"{number} {kind}" for kind, number in counts.items())
            parts.append(f"{text} ({TITLES[column]})" if "left_out" in found else text)
    return ", ".join(parts)
