"""`eval routing`: ranks the library for labelled tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from workers.cli.common import json_option, read_settings
from workers.cli.evaluation.options import (
    keep_option,
    keep_run,
    note_missing_skills,
    open_library,
    out_option,
    wait_option,
    without_option,
    write_report,
)


@click.command("routing")
@click.argument("tasks", type=click.Path(path_type=Path))
@out_option
@without_option
@keep_option
@wait_option
@json_option
def routing(
    tasks: Path, out: Path | None, without: tuple[str, ...], keep: bool, wait: bool
) -> None:
    """Compare the ranking for each task with the skills it needs.

    TASKS is JSONL with `task_id`, `instruction`, `gt_skill_ids` and optionally `also`, skills that
    are right too. Predictions are 100 ids per task, best first, as ranked before skills are chosen.

    \b
    Example:
      skillbus eval routing examples/tasks.jsonl --out ranked.json --without diffusion
    """
    from workers.evaluation.metrics import credit_also, routing_metrics
    from workers.evaluation.predictions import percentile, rank_tasks, read_jsonl
    from workers.evaluation.runs.make_run import evaluate_prompt

    settings, rows = read_settings(), read_jsonl(tasks, ("task_id", "instruction"))
    predictions, scored, prompts, encoding, rest = {}, {}, [], [], []
    needed = {row["task_id"]: row["gt_skill_ids"] for row in rows if row.get("gt_skill_ids")}
    with open_library(settings, wait) as services:
        note_missing_skills(tasks, needed.values(), services)
        for row, ranked in zip(rows, rank_tasks(services, rows, without), strict=True):
            predictions[ranked.task_id] = ranked.skill_ids
            if "gt_skill_ids" in row:
                right = list(dict.fromkeys(row["gt_skill_ids"]))
                ids = credit_also(right, row.get("also", ()), ranked.skill_ids)
                scored[ranked.task_id] = ids
                prompts.append(evaluate_prompt(ranked, row["instruction"], right, scored=ids))
            encoding.append(ranked.milliseconds.get("encode", 0.0))
            rest.append(sum(ranked.milliseconds.values()) - encoding[-1])
        skills = len(services.library.latest.pointers)
    report: dict[str, Any] = {"tasks": len(rows)} | routing_metrics(needed, scored)
    report["rank_ms_p50"] = percentile(rest, 0.5)
    report["rank_ms_p95"] = percentile(rest, 0.95)
    report["encode_ms_p50"] = percentile(encoding, 0.5)
    write_report(report, predictions, out)
    if keep and prompts:
        keep_run(settings, "routing", tasks.name, skills, without, prompts)
