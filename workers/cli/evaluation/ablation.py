"""`eval ablation`: one table of what each stage is worth."""

from __future__ import annotations

import json
from pathlib import Path

import click

from config.errors import UsageError
from workers.cli.common import json_option, note, print_json, read_settings
from workers.cli.evaluation.common import open_services, wait_option, write_output


@click.command("ablation")
@click.argument("tasks", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Write the table: Markdown for .md, JSON for .json.",
)
@click.option(
    "--bundle",
    "budget",
    type=click.IntRange(min=1),
    help="Also the share of bundles of so many tokens that hold all needed skills.",
)
@wait_option
@json_option
@click.pass_context
def ablation(
    ctx: click.Context,
    tasks: Path,
    out: Path | None,
    budget: int | None,
    wait: bool,
    as_json: bool,
) -> None:
    """Switch each stage off in turn and show what that loses, with confidence intervals.

    TASKS is JSONL with `task_id`, `instruction` and `gt_skill_ids`.

    \b
    Example:
      skillbus eval ablation examples/tasks.jsonl --out ablation.md
    """
    from workers.evaluation.ablation import ablation as measure
    from workers.evaluation.ablation import as_data, as_markdown, labelled
    from workers.evaluation.predictions import read_lines

    if out is not None and out.suffix not in (".md", ".json"):
        raise UsageError(f"--out {out}: name a file that ends in .md or .json")
    rows = labelled(read_lines(tasks, ("task_id", "instruction")))
    if not rows:
        raise UsageError(f"{tasks}: no task names the skills it needs (gt_skill_ids)")
    with open_services(read_settings(ctx), wait) as services:
        found = measure(services, rows, budget, lambda name: note(f"measuring: {name}"))
    data = as_data(found, len(rows), budget)
    table = as_markdown(found, len(rows), budget)
    if out is not None:
        as_text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
        write_output(out, as_text if out.suffix == ".json" else table)
    if as_json:
        print_json(data)
    else:
        click.echo(table, nl=False)
