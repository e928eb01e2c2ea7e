"""Section *bundles*: does the answer hold every skill that a long task needs, by budget?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.bench.quality.data import with_skills
from tests.bench.quality.figures import COLUMNS, count, mean_figure, share, wide_table
from tests.bench.quality.run import Run
from workers.evaluation.bundles import BundleOutcome, evaluate_bundles

BUDGETS = (2_000, 4_000, 8_000)
WRITERS = {"complete": share, "recall": share, "skills": "{:.1f}".format, "tokens": count}


def measure(run: Run) -> dict[str, Any]:
    """Completeness, skills and tokens of bundles in the whole library by budget."""
    found: dict[str, Any] = {}
    with run.open_whole() as services:
        for column in COLUMNS:
            rows = with_skills(run.data.labels(column, "tasks.jsonl"))
            for budget in BUDGETS if rows else ():
                given = dict(evaluate_bundles(services, rows, budget))
                needed = {row["task_id"]: set(row["gt_skill_ids"]) for row in rows}
                for name, figure in _figures(needed, given).items():
                    found.setdefault(str(budget), {}).setdefault(name, {})[column] = figure
    return found


def _figures(needed: Mapping[str, set[str]], given: Mapping[str, BundleOutcome]) -> dict[str, Any]:
    tasks = list(needed)
    outcomes = [given[task] for task in tasks]
    held = [needed[task] & set(given[task].skills) for task in tasks]
    complete = [float(len(one) == len(needed[task])) for task, one in zip(tasks, held, strict=True)]
    recall = [len(one) / len(needed[task]) for task, one in zip(tasks, held, strict=True)]
    return {
        "complete": mean_figure(complete, tasks),
        "recall": mean_figure(recall, tasks),
        "skills": mean_figure([float(len(one.skills)) for one in outcomes], tasks),
        "tokens": mean_figure([float(one.tokens) for one in outcomes], tasks),
    }


def render(found: Mapping[str, Any]) -> dict[str, str]:
    """One table, with a row per budget."""
    rows = [(f"{int(budget):,} tokens", figures) for budget, figures in found.items()]
    return {"table": wide_table("bundles", rows, WRITERS)}
