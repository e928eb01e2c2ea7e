"""`eval ablation`: measures the contribution of each stage."""

from __future__ import annotations

import json
from pathlib import Path

import click

from config.errors import UsageError
from skills.events import MAX_BUDGET
from workers.cli.common import json_option, print_result, print_to_stderr, read_settings
from workers.cli.evaluation.options import note_missing_skills, open_library, wait_option
from workers.cli.parameter_types import OutputFile
from workers.library.user_files import write_text


@click.command("ablation")
@click.argument("tasks", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=OutputFile(".md", ".json"),
    help="Write the table: Markdown for .md, JSON for .json.",
)
@click.option(
    "--bundle",
    "budget",
    type=click.IntRange(1, MAX_BUDGET),
    help="Also measure the share of bundles of this many tokens that hold all needed skills.",
)
@wait_option
@json_option
def ablation(tasks: Path, out: Path | None, budget: int | None, wait: bool) -> None:
    """Rank with each stage switched off in turn.

    The table shows the loss of each, with confidence intervals. TASKS is JSONL with `task_id`,
    `instruction` and `gt_skill_ids`.

    \b
    Example:
      skillbus eval ablation examples/tasks.jsonl --out ablation.md
    """
    from workers.evaluation.ablation import ablation as measure
    from workers.evaluation.ablation import to_json_data, to_markdown
    from workers.evaluation.predictions import read_jsonl

    given = read_jsonl(tasks, ("task_id", "instruction"))
    rows = [row for row in given if row.get("gt_skill_ids")]
    if not rows:
        raise UsageError(f"{tasks}: no task has `gt_skill_ids`; add the skills that each needs")
    with open_library(read_settings(), wait) as services:
        note_missing_skills(tasks, (row["gt_skill_ids"] for row in rows), services)
        found = measure(services, rows, budget, lambda name: print_to_stderr(f"measuring: {name}"))
    data = to_json_data(found, len(rows), budget)
    table = to_markdown(found, len(rows), budget)
    print_result(data, lambda _: click.echo(table, nl=False))
    if out is not None:
        as_text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
        write_text(out, as_text if out.suffix == ".json" else table)
