"""`eval`: rank, page and classify one's own labelled tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from config.errors import UsageError
from config.settings import STAGES, Settings
from tasks.services import Services
from workers.cli.common import (
    ProgressLine,
    json_option,
    note,
    open_catalog,
    print_json,
    read_settings,
)
from workers.client import ServeClient

without_option = click.option(
    "--without", multiple=True, type=click.Choice(STAGES), help="Switch a stage off."
)
out_option = click.option(
    "--out", type=click.Path(path_type=Path), help="Write the predictions as JSON."
)
wait_option = click.option(
    "--wait/--no-wait",
    default=True,
    help="Wait until all is paged, or say how much is missing and go on.",
)


@click.group("eval")
def evaluate() -> None:
    """Measure routing, paging and roles on labelled data of your own."""


@evaluate.command("routing")
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

    TASKS is JSONL with `task_id`, `instruction` and `gt_skill_ids`. Predictions are 100 ids a
    task, best first, as ranked before choosing.

    \b
    Example:
      skillbus eval routing examples/tasks.jsonl --out ranked.json --without diffusion
    """
    from workers.evaluation.metrics import routing_metrics
    from workers.evaluation.predictions import percentile, rankings, read_lines

    rows = read_lines(tasks, ("task_id", "instruction"))
    predictions, encoding, rest = {}, [], []
    with open_services(read_settings(ctx), wait) as services:
        for task_id, ids, stages in rankings(services, rows, without):
            predictions[task_id] = ids
            encoding.append(stages.get("encode", 0.0))
            rest.append(sum(stages.values()) - encoding[-1])
    needed = {row["task_id"]: row["gt_skill_ids"] for row in rows if row.get("gt_skill_ids")}
    report: dict[str, Any] = {"tasks": len(rows)} | routing_metrics(needed, predictions)
    report["rank_ms_p50"] = percentile(rest, 0.5)
    report["rank_ms_p95"] = percentile(rest, 0.95)
    report["encode_ms_p50"] = percentile(encoding, 0.5)
    _finish(report, predictions, out, as_json)


@evaluate.command("paging")
@click.argument("queries", type=click.Path(path_type=Path))
@out_option
@click.option("--method", type=click.Choice(["f", "mmr"]), help="[default: paging.method]")
@click.option("--gap", type=float, help="The score gap of method f. [default: paging.gap]")
@without_option
@wait_option
@json_option
@click.pass_context
def paging(
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
    from workers.evaluation.metrics import paging_metrics
    from workers.evaluation.predictions import picked_lines, read_lines

    settings = read_settings(ctx)
    rows = read_lines(queries, ("query_id", "skill_id", "query"))
    predictions, scored = {}, []
    with open_services(settings, wait) as services:
        chosen_gap = settings.paging.gap if gap is None else gap
        chosen = picked_lines(services, rows, method or settings.paging.method, chosen_gap, without)
        for query, revision, ranges in chosen:
            predictions[query["query_id"]] = ranges
            parsed = revision.parsed
            if query.get("required"):
                scored.append((query["required"], ranges, parsed.lines, parsed.body_line))
    report: dict[str, Any] = {"queries": len(rows)}
    if scored:
        report |= paging_metrics(scored)
    _finish(report, predictions, out, as_json)


@evaluate.command("roles")
@click.option("--skills", "skill_ids", required=True, help="Ids, with commas between.")
@out_option
@click.option("--gold", type=click.Path(path_type=Path), help="Labelled ranges, for the metrics.")
@json_option
@click.pass_context
def roles(
    ctx: click.Context, skill_ids: str, out: Path | None, gold: Path | None, as_json: bool
) -> None:
    """Give the role of every line of some skills.

    \b
    Example:
      skillbus eval roles --skills examples:trip-cleaning,examples:month-close --out roles.json
    """
    from workers.evaluation.metrics import role_metrics
    from workers.evaluation.predictions import roles_of

    ids = [part.strip() for part in skill_ids.split(",") if part.strip()]
    if not ids:
        raise UsageError("--skills names no skill")
    with open_services(read_settings(ctx), wait=False) as services:
        predictions = roles_of(services, ids)
    report: dict[str, Any] = {"skills": len(predictions)}
    if gold is not None:
        report |= role_metrics(_read_gold(gold), predictions)
    _finish(report, predictions, out, as_json)


def _read_gold(path: Path) -> dict[str, Any]:
    try:
        labelled = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(labelled, dict):
        raise UsageError(f"{path}: an object of skill id -> [[first, last, role], …] is wanted")
    return labelled


@contextmanager
def open_services(settings: Settings, wait: bool) -> Iterator[Services]:
    """Stores and models for reading; first waits for paging, or says what is missing."""
    from workers.runtime import Runtime

    if wait:
        _wait_for_paging(settings)
    with open_catalog(settings) as graph:
        counts = graph.counts()
    missing = counts["published"] - counts["paged"]
    if missing:
        note(f"{missing} of {counts['published']} skills are not paged; words alone page them")
    runtime = Runtime(settings, writable=False)
    try:
        yield runtime.services
    finally:
        runtime.stop()


def _wait_for_paging(settings: Settings) -> None:
    """Until `serve`, or a runtime of our own where none runs, has paged all that is published."""
    from workers.runtime import Runtime

    with open_catalog(settings) as graph:
        counts = graph.counts()
    if counts["paged"] == counts["published"]:
        return
    client = ServeClient.find(settings.home)
    with ProgressLine() as line, open_catalog(settings) as graph:
        if client is not None:
            client.close()
            _until_paged(graph, line)
        else:
            with Runtime(settings, writable=True):
                _until_paged(graph, line)


def _until_paged(graph: Any, line: ProgressLine) -> None:
    import time

    while True:
        counts = graph.counts()
        line.show(counts)
        if counts["paged"] == counts["published"]:
            return
        time.sleep(0.2)


def _finish(report: dict[str, Any], predictions: Any, out: Path | None, as_json: bool) -> None:
    if out is not None:
        try:
            out.write_text(json.dumps(predictions, ensure_ascii=False) + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{out} cannot be written: {error.strerror}") from error
    if as_json:
        print_json(report)
        return
    for name, value in report.items():
        click.echo(f"{name:<16} {value:.4f}" if isinstance(value, float) else f"{name:<16} {value}")
