"""`eval paging`: selects passages of one skill for labelled queries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from workers.cli.common import json_option, read_settings
from workers.cli.evaluation.options import (
    check_line_ranges,
    open_library,
    out_option,
    wait_option,
    without_option,
    write_report,
)
from workers.cli.parameter_types import NumberRange


@click.command("paging")
@click.argument("queries", type=click.Path(path_type=Path))
@out_option
@click.option(
    "--method",
    type=click.Choice(["f", "mmr", "topk", "graph", "chunks", "full"]),
    help="Method of passage selection; queries use f, mmr or full. [default: passages.method]",
)
@click.option(
    "--miss",
    type=NumberRange(min=0, max=1),
    help="Share of what is needed that method f may miss. [default: passages.miss]",
)
@without_option
@wait_option
@json_option
def paging(
    queries: Path,
    out: Path | None,
    method: str | None,
    miss: float | None,
    without: tuple[str, ...],
    wait: bool,
) -> None:
    """Compare the selected lines of a skill with required lines.

    QUERIES is JSONL with `query_id`, `skill_id`, `query` and, for the metrics, `required`: line
    ranges of the SKILL.md.

    \b
    Example:
      skillbus eval paging examples/queries.jsonl --out picked.json
    """
    from workers.evaluation.metrics import passage_metrics
    from workers.evaluation.passages import select_lines
    from workers.evaluation.predictions import read_jsonl

    settings = read_settings()
    rows = read_jsonl(queries, ("query_id", "skill_id", "query"))
    predictions, scored = {}, []
    with open_library(settings, wait) as services:
        chosen_miss = settings.passages.miss if miss is None else miss
        chosen = select_lines(
            services, rows, method or settings.passages.method, chosen_miss, without
        )
        for picked in chosen:
            predictions[picked.query["query_id"]] = picked.ranges
            parsed = picked.revision.parsed
            if required := picked.query.get("required"):
                check_line_ranges(picked.query["query_id"], required, len(parsed.lines))
                scored.append((required, picked.ranges, parsed.lines, parsed.body_line))
    report: dict[str, Any] = {"queries": len(rows)}
    if scored:
        report |= passage_metrics(scored)
    write_report(report, predictions, out)
