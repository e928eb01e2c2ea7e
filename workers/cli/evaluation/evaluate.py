"""`eval`: rank, page and classify one's own labelled tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from config.errors import UsageError
from workers.cli.common import json_option, read_settings
from workers.cli.evaluation.ablation import ablation
from workers.cli.evaluation.bundles import bundles
from workers.cli.evaluation.options import (
    open_library,
    out_option,
    wait_option,
    without_option,
    write_report,
)


@click.group("eval")
def evaluate() -> None:
    """Measure routing, bundles, paging and roles on labelled data of your own."""


@evaluate.command("routing")
@click.argument("tasks", type=click.Path(path_type=Path))
@out_option
@without_option
@wait_option
@json_option
@click.pass_context
def evaluate_routing(
    ctx: click.Context,
    tasks: Path,
    out: Path | None,
    without: tuple[str, ...],
    wait: bool,
    as_json: bool,
) -> None:
    """Rank the library for each task and compare with the skills it needs.

    TASKS is JSONL with `task_id`, `instruction` and `gt_skill_ids`. Predictions are 100 ids a
    task, best first, as ranked before choosing.

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


@evaluate.command("paging")
@click.argument("queries", type=click.Path(path_type=Path))
@out_option
@click.option(
    "--method",
    type=click.Choice(["f", "mmr", "topk", "graph", "chunks", "full"]),
    help="How passages are picked; a query uses f, mmr or full. [default: passages.method]",
)
@click.option(
    "--gap", type=click.FloatRange(min=0), help="The gap of method f. [default: passages.gap]"
)
@without_option
@wait_option
@json_option
@click.pass_context
def evaluate_passages(
    ctx: click.Context,
    queries: Path,
    out: Path | None,
    method: str | None,
    gap: float | None,
    without: tuple[str, ...],
    wait: bool,
    as_json: bool,
) -> None:
    """Pick the lines of one skill for each query and compare with those it requires.

    QUERIES is JSONL with `query_id`, `skill_id`, `query` and, for the metrics, `required`: line
    ranges of the SKILL.md.

    \b
    Example:
      skillbus eval paging examples/queries.jsonl --out picked.json
    """
    from workers.evaluation.metrics import passage_metrics
    from workers.evaluation.passages import select_lines
    from workers.evaluation.predictions import read_jsonl

    settings = read_settings(ctx)
    rows = read_jsonl(queries, ("query_id", "skill_id", "query"))
    predictions, scored = {}, []
    with open_library(settings, wait) as services:
        chosen_gap = settings.passages.gap if gap is None else gap
        chosen = select_lines(
            services, rows, method or settings.passages.method, chosen_gap, without
        )
        for picked in chosen:
            predictions[picked.query["query_id"]] = picked.ranges
            parsed = picked.revision.parsed
            if required := picked.query.get("required"):
                _check_ranges(picked.query["query_id"], required, len(parsed.lines))
                scored.append((required, picked.ranges, parsed.lines, parsed.body_line))
    report: dict[str, Any] = {"queries": len(rows)}
    if scored:
        report |= passage_metrics(scored)
    write_report(report, predictions, out, as_json)


def _check_ranges(query_id: str, ranges: Any, lines: int) -> None:
    """Raise UsageError for line ranges of another shape or beyond the file."""
    for row in ranges if isinstance(ranges, list) else [ranges]:
        match row:
            case [int(first), int(last)] if 1 <= first <= last <= lines:
                continue
            case _:
                raise UsageError(
                    f"{query_id}: {row!r} is no range of lines; `required` holds [first, last] "
                    f"within the {lines} lines of the skill"
                )


@evaluate.command("roles")
@click.option("--skills", "skill_ids", required=True, help="Ids, with commas between.")
@out_option
@click.option("--gold", type=click.Path(path_type=Path), help="Labelled ranges, for the metrics.")
@click.option(
    "--weights",
    type=click.Path(path_type=Path),
    help="Weights of `train roles`. [default: the roles that the library holds]",
)
@json_option
@click.pass_context
def evaluate_roles(
    ctx: click.Context,
    skill_ids: str,
    out: Path | None,
    gold: Path | None,
    weights: Path | None,
    as_json: bool,
) -> None:
    """Give the role of every line of some skills.

    \b
    Example:
      skillbus eval roles --skills examples:trip-cleaning,examples:month-close --out roles.json
    """
    from skills.roles.classifier import parse_weights
    from workers.evaluation.metrics import role_metrics
    from workers.evaluation.predictions import predict_roles
    from workers.library.user_files import read_bytes

    ids = [part.strip() for part in skill_ids.split(",") if part.strip()]
    if not ids:
        raise UsageError("--skills names no skill")
    classifier = None if weights is None else parse_weights(read_bytes(weights))
    with open_library(read_settings(ctx), wait=False) as services:
        predictions = predict_roles(services, ids, classifier)
    report: dict[str, Any] = {"skills": len(predictions)}
    if gold is not None:
        report |= role_metrics(_read_gold(gold), predictions)
    write_report(report, predictions, out, as_json)


def _read_gold(path: Path) -> dict[str, Any]:
    try:
        labelled = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(labelled, dict):
        raise UsageError(f"{path}: an object of skill id -> [[first, last, role], …] is wanted")
    return labelled


evaluate.add_command(bundles)
evaluate.add_command(ablation)
