"""`eval answers`: runs labelled queries on the whole library and looks for the required lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from workers.cli.common import format_count, json_option, print_table, read_settings
from workers.cli.evaluation.options import (
    budget_option,
    check_line_ranges,
    open_library,
    out_option,
    wait_option,
    without_option,
    write_report,
)


@click.command("answers")
@click.argument("queries", type=click.Path(path_type=Path))
@budget_option
@click.option(
    "--top",
    type=click.IntRange(1, 100),
    help="Maximum number of matches; their dependencies are added. [default: choice.top]",
)
@out_option
@without_option
@wait_option
@json_option
def answers(
    queries: Path,
    budgets: tuple[int, ...],
    top: int | None,
    out: Path | None,
    without: tuple[str, ...],
    wait: bool,
) -> None:
    """Look for the required lines of queries in their bundles.

    Each query is sent to the whole library. QUERIES is JSONL with `query_id`, `skill_id`, `query`
    and `required`: line ranges of the SKILL.md. The predictions are the answers at the largest
    budget, by query: the bundle's tokens, and the line ranges of each skill, best first.

    \b
    Example:
      skillbus eval answers examples/queries.jsonl --budget 4000 --out answers.json
    """
    from workers.evaluation.answers import answer_metrics, answer_queries
    from workers.evaluation.predictions import read_jsonl, read_published_revisions

    rows = read_jsonl(queries, ("query_id", "skill_id", "query"))
    report: dict[str, Any] = {"queries": len(rows), "budgets": {}}
    given = {}
    with open_library(read_settings(), wait) as services:
        revisions = read_published_revisions(services, [row["skill_id"] for row in rows])
        parsed = {skill_id: revision.parsed for skill_id, revision in revisions.items()}
        for row in rows:
            lines = parsed[row["skill_id"]].lines
            check_line_ranges(row["query_id"], row.get("required"), len(lines))
        for budget in sorted(set(budgets)):
            given = dict(answer_queries(services, rows, budget, top, without))
            report["budgets"][str(budget)] = answer_metrics(rows, given, parsed)
    predictions = {
        query_id: {"tokens": answer.tokens, "skills": answer.skills}
        for query_id, answer in given.items()
    }
    write_report(report, predictions, out, _print)


def _print(report: dict[str, Any]) -> None:
    """Print a row per budget."""
    click.echo(format_count(report["queries"], "query"))
    names = ("complete", "skill", "offered", "recall", "tokens", "skills")
    rows = [
        (budget, *(_figure(name, figures[name]) for name in names))
        for budget, figures in report["budgets"].items()
    ]
    print_table(rows, ("budget", *names))


def _figure(name: str, figure: Any) -> str:
    if name == "tokens":
        return f"{figure:.0f}"
    if name == "skills":
        return f"{figure:.1f}"
    return f"{figure['mean']:.3f} [{figure['low']:.3f}, {figure['high']:.3f}]"
