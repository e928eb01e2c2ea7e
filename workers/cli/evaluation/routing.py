"""`eval routing`: ranks the library for labelled tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from workers.cli.common import json_option, read_settings
from workers.cli.evaluation.options import (
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
@wait_option
@json_option
@click.pass_context
def routing(
    ctx: click.Context,
    tasks: Path,
    out: Path | None,
    without: tuple[str, ...],
    wait: bool,
    as_json: bool,
) -> None:
    """Rank the library for each task and compare with the skills it needs.

    TASKS is JSONL with `task_id`, `instruction` and `gt_skill_ids`. Predictions are 100 ids per
    task, best first, as ranked before skills are chosen.

    \b
    Example:
      skillbus eval routing examples/tasks.jsonl --out ranked.json --without diffusion
    """
    from workers.evaluation.metrics import routing_metrics
    from workers.evaluation.predictions import percentile, rank_tasks, read_jsonl

    rows = read_jsonl(tasks, ("task_id", "instruction"))
    predictions, encoding, rest = {}, [], []
    with open_library(read_settings(ctx), wait) as services:
        for task_id, ids, stages in rank_tasks(services, rows, without):
            predictions[task_id] = ids
            encoding.append(stages.get("encode", 0.0))
            rest.append(sum(stages.values()) - encoding[-1])
    needed = {row["task_id"]: row["gt_skill_ids"] for row in rows if row.get("gt_skill_ids")}
    report: dict[str, Any] = {"tasks": len(rows)} | routing_metrics(needed, predictions)
    report["rank_ms_p50"] = percentile(rest, 0.5)
    report["rank_ms_p95"] = percentile(rest, 0.95)
    report["encode_ms_p50"] = percentile(encoding, 0.5)
    write_report(report, predictions, out, as_json)
