"""`eval bundles`: measures whether bundles hold the skills that tasks need, by budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from workers.cli.common import format_count, json_option, print_table, read_settings
from workers.cli.evaluation.options import (
    budget_option,
    keep_option,
    keep_run,
    note_missing_skills,
    open_library,
    out_option,
    wait_option,
    without_option,
    write_report,
)


@click.command("bundles")
@click.argument("tasks", type=click.Path(path_type=Path))
@budget_option
@out_option
@without_option
@keep_option
@wait_option
@json_option
def bundles(
    tasks: Path,
    budgets: tuple[int, ...],
    out: Path | None,
    without: tuple[str, ...],
    keep: bool,
    wait: bool,
) -> None:
    """Compare the bundle of each task with the skills it needs.

    TASKS is JSONL with `task_id`, `instruction` and `gt_skill_ids`. A task with an empty list has
    no skill in the library and should be answered NO_SKILL_HIT. Predictions are the ids of each
    task's bundle, by budget.

    \b
    Example:
      skillbus eval bundles examples/tasks.jsonl --budget 4000 --budget 8000 --out bundles.json
    """
    from workers.evaluation.bundles import (
        BundleOutcome,
        bundle_metrics,
        count_missing_skills,
        evaluate_bundles,
    )
    from workers.evaluation.predictions import read_jsonl
    from workers.evaluation.runs.make_run import evaluate_bundle_prompt

    settings, rows = read_settings(), read_jsonl(tasks, ("task_id", "instruction"))
    needed = {row["task_id"]: row["gt_skill_ids"] for row in rows if "gt_skill_ids" in row}
    report: dict[str, Any] = {"tasks": len(rows), "budgets": {}}
    predictions: dict[str, dict[str, list[str]]] = {row["task_id"]: {} for row in rows}
    outcomes: dict[str, dict[int, BundleOutcome]] = {row["task_id"]: {} for row in rows}
    with open_library(settings, wait) as services:
        note_missing_skills(tasks, needed.values(), services)
        for budget in dict.fromkeys(budgets):
            given = dict(evaluate_bundles(services, rows, budget, without))
            for task_id, outcome in given.items():
                predictions[task_id][str(budget)] = list(outcome.skills)
                outcomes[task_id][budget] = outcome
            report["budgets"][str(budget)] = {
                "metrics": bundle_metrics(needed, given),
                "missed": count_missing_skills(needed, given),
            }
        skills = len(services.library.latest.pointers)
    write_report(report, predictions, out, _print)
    prompts = [
        evaluate_bundle_prompt(row, outcomes[row["task_id"]])
        for row in rows
        if "gt_skill_ids" in row
    ]
    if keep and prompts:
        keep_run(settings, "bundles", tasks.name, skills, without, prompts)


def _print(report: dict[str, Any]) -> None:
    """Print a row per budget, then why needed skills are missing."""
    click.echo(format_count(report["tasks"], "task"))
    found = report["budgets"]
    names = list(dict.fromkeys(name for row in found.values() for name in row["metrics"]))
    rows = [
        (budget, *(_figure(name, row["metrics"].get(name)) for name in names))
        for budget, row in found.items()
    ]
    print_table(rows, ("budget", *names))
    for budget, row in found.items():
        for reason, count in row["missed"].items():
            click.echo(f"missing at {budget} tokens: {format_count(count, 'skill')}, {reason}")


def _figure(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if name == "tokens" else f"{value:.3f}"
