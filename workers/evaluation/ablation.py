"""Ablation: metrics with all stages, and with each stage off in turn, on the same tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from config.settings import OPTIONAL_STAGES
from tasks.evaluations.model import Measure
from tasks.services import Services
from workers.evaluation.bundles import evaluate_bundles
from workers.evaluation.intervals import bootstrap_interval
from workers.evaluation.metrics import credit_also, routing_metrics_by_task
from workers.evaluation.predictions import rank_tasks

METRICS = ("Hit@1", "MRR@10", "nDCG@10", "R@10", "FC@10")
BUNDLE = "bundle"

ALL_STAGES = "all stages"
_BUNDLE_STAGES = frozenset({"floor", "paging"})
"""Stages after ranking, which change only bundles."""
_LEXICAL_STAGES = frozenset({"names", "bigrams", "artifacts", "hub"})
"""Ranking stages that use only the words of task and skill."""


@dataclass(frozen=True, slots=True)
class AblationRow:
    """A configuration: its metrics, and their differences from all stages, paired by task."""

    name: str
    without: tuple[str, ...]
    metrics: Mapping[str, Measure]
    differences: Mapping[str, Measure]


def configurations(*, bundles: bool) -> list[tuple[str, tuple[str, ...]]]:
    """Return (name, stages off): all stages, each stage off in turn, lexical
    stages only, BM25F only."""
    ranking = [stage for stage in OPTIONAL_STAGES if stage not in _BUNDLE_STAGES]
    single = [stage for stage in OPTIONAL_STAGES if bundles or stage in ranking]
    not_lexical = tuple(stage for stage in ranking if stage not in _LEXICAL_STAGES)
    return [
        (ALL_STAGES, ()),
        *((f"without {stage}", (stage,)) for stage in single),
        ("lexical stages only", not_lexical),
        ("BM25F only", tuple(ranking)),
    ]


def ablation(
    services: Services,
    tasks: Sequence[dict[str, Any]],
    budget: int | None,
    on_start: Callable[[str], None],
) -> list[AblationRow]:
    """Measure each configuration.

    tasks: objects with `task_id`, `instruction` and `gt_skill_ids`, none empty. budget: tokens of
    a bundle; with it, the share of complete bundles is measured too. on_start: called with the name
    of each configuration before it is measured.
    """
    rows: list[AblationRow] = []
    base: dict[str, list[float]] = {}
    for configuration, without in configurations(bundles=budget is not None):
        on_start(configuration)
        values = _measure(services, tasks, without, budget)
        base = base or values
        rows.append(
            AblationRow(
                configuration,
                without,
                {name: bootstrap_interval(found) for name, found in values.items()},
                {
                    name: bootstrap_interval(
                        [a - b for a, b in zip(found, base[name], strict=True)]
                    )
                    for name, found in values.items()
                },
            )
        )
    return rows


def _measure(
    services: Services,
    tasks: Sequence[dict[str, Any]],
    without: tuple[str, ...],
    budget: int | None,
) -> dict[str, list[float]]:
    """Return the values of each metric, in the order of the tasks."""
    needed = {task["task_id"]: set(task["gt_skill_ids"]) for task in tasks}
    ranked = {
        one.task_id: credit_also(task["gt_skill_ids"], task.get("also", ()), one.skill_ids)
        for task, one in zip(tasks, rank_tasks(services, tasks, without), strict=True)
    }
    rows = routing_metrics_by_task(needed, ranked)
    values = {name: [rows[task][name] for task in needed] for name in METRICS}
    if budget is not None:
        given = dict(evaluate_bundles(services, tasks, budget, without))
        values[BUNDLE] = [float(needed[task] <= set(given[task].skills)) for task in needed]
    return values


def to_markdown(rows: Iterable[AblationRow], tasks: int, budget: int | None) -> str:
    """Return the rows as a Markdown table, with 95% intervals."""
    rows = list(rows)
    names = list(rows[0].metrics)
    headers = [f"bundle@{budget}" if name == BUNDLE else name for name in names]
    lines = [
        f"{tasks} tasks. First row: mean [95% bootstrap interval]. Other rows: mean (paired "
        "difference from the first row [95% interval]).",
        "",
        f"| stages | {' | '.join(headers)} |",
        f"| --- |{' --- |' * len(headers)}",
    ]
    for row in rows:
        cells = [_cell(row, name) for name in names]
        lines.append(f"| {row.name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(row: AblationRow, name: str) -> str:
    mean, low, high = row.metrics[name]
    if row.name == ALL_STAGES:
        return f"{mean:.3f} [{low:.2f}, {high:.2f}]"
    difference, low, high = row.differences[name]
    if low == high == 0:
        return f"{mean:.3f} (=)"
    return f"{mean:.3f} ({difference:+.3f} [{low:+.2f}, {high:+.2f}])"


def to_json_data(rows: Iterable[AblationRow], tasks: int, budget: int | None) -> dict[str, Any]:
    """Return the rows as JSON data."""
    return {
        "tasks": tasks,
        "budget": budget,
        "rows": [
            {
                "name": row.name,
                "without": list(row.without),
                "figures": _intervals(row.metrics),
                "against_all_on": _intervals(row.differences),
            }
            for row in rows
        ],
    }


def _intervals(found: Mapping[str, Measure]) -> dict[str, dict[str, float]]:
    return {
        name: {field: round(value, 4) for field, value in interval._asdict().items()}
        for name, interval in found.items()
    }
