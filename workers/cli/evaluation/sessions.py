"""`eval sessions`: queries long tasks paragraph by paragraph in a session, and as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from config.errors import UsageError
from workers.cli.common import format_count, json_option, print_table, progress_bar, read_settings
from workers.cli.evaluation.options import (
    budget_option,
    note_missing_skills,
    open_library,
    out_option,
    wait_option,
    without_option,
    write_report,
)
from workers.cli.parameter_types import OutputFile
from workers.library.user_files import write_text

if TYPE_CHECKING:
    from workers.evaluation.sessions import Sent

_COLUMNS = (
    "complete",
    "needed_skills",
    "tokens",
    "skills_per_1000",
    "lines_per_1000",
    "against_one_shot",
    "lines_sent_again",
)


@click.command("sessions")
@click.argument("tasks", type=click.Path(path_type=Path))
@budget_option
@out_option
@click.option("--plot", type=OutputFile(), help="Draw needed skills by tokens as SVG.")
@without_option
@wait_option
@json_option
def sessions(
    tasks: Path,
    budgets: tuple[int, ...],
    out: Path | None,
    plot: Path | None,
    without: tuple[str, ...],
    wait: bool,
) -> None:
    """Compare a session of short queries with a single query.

    In the session, tasks are revealed paragraph by paragraph. TASKS is JSONL with `task_id`,
    `instruction` and `gt_skill_ids`; blank lines divide paragraphs. A budget is for the whole task,
    in one query or in many. Queries of the session are brief; `one_shot_brief` is one brief query
    for the whole task. `following` queries the whole task as the second query of a session, each
    query with the full budget.

    \b
    Example:
      skillbus eval sessions examples/tasks.jsonl --budget 4000 --plot sessions.svg
    """
    from workers.evaluation.predictions import read_jsonl
    from workers.evaluation.sessions import evaluate_sessions, session_metrics, trace_reveal

    rows = read_jsonl(tasks, ("task_id", "instruction", "gt_skill_ids"))
    needed = {row["task_id"]: row["gt_skill_ids"] for row in rows}
    if not any(needed.values()):
        raise UsageError(f"{tasks}: no task has `gt_skill_ids`; add the skills that each needs")
    report: dict[str, Any] = {"tasks": len(rows), "budgets": {}}
    predictions: dict[str, dict[str, Any]] = {task_id: {} for task_id in needed}
    chosen = sorted(set(budgets))
    with open_library(read_settings(), wait) as services, progress_bar("tasks") as progress:
        note_missing_skills(tasks, needed.values(), services)
        done = 0
        for budget in chosen:
            given = {}
            for task_id, sent in evaluate_sessions(services, rows, budget, without):
                given[task_id] = sent
                done += 1
                progress(done, len(rows) * len(chosen))
            for task_id, sent in given.items():
                predictions[task_id][str(budget)] = _to_prediction(sent)
            report["budgets"][str(budget)] = {
                "metrics": session_metrics(needed, given),
                "reveal": trace_reveal(needed, given),
            }
    write_report(report, predictions, out, _print)
    if plot is not None:
        write_text(plot, _draw(report))


def _to_prediction(sent: Mapping[str, Sent]) -> dict[str, Any]:
    """Return the sent skills and tokens of a task by way of asking, as JSON data."""
    return {arm: {"skills": sorted(one.skills), "tokens": one.tokens} for arm, one in sent.items()}


def _draw(report: dict[str, Any]) -> str:
    """Plot the share of the needed skills against tokens per task: a line for each budget of a
    session, and for each kind of one shot."""
    from workers.evaluation.line_plot import Line, draw_lines

    lines = [
        Line(
            f"paragraphs, {int(budget):,} tokens",
            tuple((row["tokens"], row["recall"]) for row in found["reveal"]),
            colour,
        )
        for colour, (budget, found) in enumerate(report["budgets"].items())
    ]
    for arm, name in (("one_shot", "one shot"), ("one_shot_brief", "one shot, brief")):
        metrics = [found["metrics"][arm] for found in report["budgets"].values()]
        points = tuple((one["tokens"] / one["tasks"], one["recall"]) for one in metrics)
        lines.append(Line(f"{name}, by budget", points, len(lines)))
    title = "Share of the needed skills that were sent"
    return draw_lines(title, "tokens a task", "share of the needed skills", lines)


def _print(report: dict[str, Any]) -> None:
    """Print a row per budget and way of asking."""
    click.echo(format_count(report["tasks"], "task"))
    rows = [
        (budget, arm, *(_figure(metrics[name]) for name in _COLUMNS))
        for budget, found in report["budgets"].items()
        for arm, metrics in found["metrics"].items()
    ]
    print_table(rows, ("budget", "asked", *_COLUMNS))


def _figure(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.3f}"
