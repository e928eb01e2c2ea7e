"""What each stage is worth: all on, and one off at a time, over the same tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from config.settings import OPTIONAL_STAGES
from tasks.services import Services
from workers.evaluation.bundles import evaluate_bundles
from workers.evaluation.intervals import ConfidenceInterval, bootstrap_interval
from workers.evaluation.metrics import routing_metrics_by_task
from workers.evaluation.predictions import rank_tasks

METRICS = ("Hit@1", "MRR@10", "nDCG@10", "R@10", "FC@10")
BUNDLE = "bundle"

ALL_ON = "all on"
_BUNDLE_STAGES = frozenset({"floor", "paging"})
"""Stages that cannot move a ranking: they only show in bundles."""
_LEXICAL_STAGES = frozenset({"names", "bigrams", "artifacts", "hub"})
"""Ranking stages that read nothing but the words of task and skill."""


@dataclass(frozen=True, slots=True)
class AblationRow:
    """A configuration: its figures, and what they lose or gain against all on (paired by task)."""

    name: str
    without: tuple[str, ...]
    figures: Mapping[str, ConfidenceInterval]
    differences: Mapping[str, ConfidenceInterval]


def configurations(
    stages: Sequence[str] = OPTIONAL_STAGES, bundles: bool = False
) -> list[tuple[str, tuple[str, ...]]]:
    """(name, stages off): all on, each stage off in turn, only words, only the base score."""
    ranking = [stage for stage in stages if stage not in _BUNDLE_STAGES]
    single = [stage for stage in stages if bundles or stage in ranking]
    beyond_words = tuple(stage for stage in ranking if stage not in _LEXICAL_STAGES)
    return [
        (ALL_ON, ()),
        *((f"without {stage}", (stage,)) for stage in single),
        ("words alone", beyond_words),
        ("BM25F alone", tuple(ranking)),
    ]


def ablation(
    services: Services,
    tasks: Sequence[dict[str, Any]],
    budget: int | None,
    on_start: Callable[[str], None],
) -> list[AblationRow]:
    """A row for each configuration; with a budget, also the share of complete bundles.

    `tasks` have `task_id`, `instruction` and `gt_skill_ids`, none of them empty. `begun` is told
    each configuration's name before it is measured.
    """
    rows: list[AblationRow] = []
    base: dict[str, list[float]] = {}
    for name, without in configurations(bundles=budget is not None):
        on_start(name)
        values = _measure(services, tasks, without, budget)
        base = base or values
        rows.append(
            AblationRow(
                name,
                without,
                {figure: bootstrap_interval(found) for figure, found in values.items()},
                {
                    figure: bootstrap_interval(
                        [a - b for a, b in zip(found, base[figure], strict=True)]
                    )
                    for figure, found in values.items()
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
    """Each figure's value of each task, in the order of the tasks."""
    needed = {task["task_id"]: set(task["gt_skill_ids"]) for task in tasks}
    ranked = {task_id: ids for task_id, ids, _ in rank_tasks(services, tasks, without)}
    rows = routing_metrics_by_task(needed, ranked)
    values = {figure: [rows[task][figure] for task in needed] for figure in METRICS}
    if budget is not None:
        given = dict(evaluate_bundles(services, tasks, budget, without))
        values[BUNDLE] = [float(needed[task] <= set(given[task].skills)) for task in needed]
    return values


def to_markdown(rows: Iterable[AblationRow], tasks: int, budget: int | None) -> str:
    """A table for a person: figures with their interval, differences below all on."""
    rows = list(rows)
    figures = list(rows[0].figures)
    names = [f"bundle@{budget}" if figure == BUNDLE else figure for figure in figures]
    lines = [
        f"{tasks} tasks. First row: mean [95% bootstrap interval]. Others: mean, and the paired "
        "difference from the first [95%].",
        "",
        f"| stages | {' | '.join(names)} |",
        f"| --- |{' --- |' * len(names)}",
    ]
    for row in rows:
        cells = [_cell(row, figure) for figure in figures]
        lines.append(f"| {row.name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(row: AblationRow, figure: str) -> str:
    if row.name == ALL_ON:
        mean, low, high = row.figures[figure]
        return f"{mean:.3f} [{low:.2f}, {high:.2f}]"
    difference, low, high = row.differences[figure]
    if low == high == 0:
        return f"{row.figures[figure].mean:.3f} (=)"
    return f"{row.figures[figure].mean:.3f} ({difference:+.3f} [{low:+.2f}, {high:+.2f}])"


def to_json_data(rows: Iterable[AblationRow], tasks: int, budget: int | None) -> dict[str, Any]:
    """The same as JSON data."""
    return {
        "tasks": tasks,
        "budget": budget,
        "rows": [
            {
                "name": row.name,
                "without": list(row.without),
                "figures": _intervals(row.figures),
                "against_all_on": _intervals(row.differences),
            }
            for row in rows
        ],
    }


def _intervals(found: Mapping[str, ConfidenceInterval]) -> dict[str, dict[str, float]]:
    return {
        figure: {name: round(value, 4) for name, value in each._asdict().items()}
        for figure, each in found.items()
    }


def tasks_with_gold_skills(tasks: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The tasks that name the skills they need: only those can be scored."""
    return [task for task in tasks if task.get("gt_skill_ids")]
