"""`eval roles`: classifies the lines of skills."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from config.errors import UsageError
from workers.cli.common import json_option, read_settings
from workers.cli.evaluation.options import open_library, out_option, write_report


@click.command("roles")
@click.option("--skills", "skill_ids", required=True, help="Comma-separated ids.")
@out_option
@click.option(
    "--gold",
    type=click.Path(path_type=Path),
    help="Labelled ranges, for metrics over those of the --skills that are labelled.",
)
@click.option(
    "--weights",
    type=click.Path(path_type=Path),
    help="Weights of `train roles`. [default: the roles stored in the library]",
)
@json_option
@click.pass_context
def roles(
    ctx: click.Context,
    skill_ids: str,
    out: Path | None,
    gold: Path | None,
    weights: Path | None,
    as_json: bool,
) -> None:
    """Classify every line of some skills by its role.

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
        raise UsageError("--skills: give at least one skill id")
    classifier = None if weights is None else parse_weights(read_bytes(weights))
    with open_library(read_settings(ctx), wait=False) as services:
        predictions = predict_roles(services, ids, classifier)
    report: dict[str, Any] = {"skills": len(predictions)}
    if gold is not None:
        labels = _read_gold(gold)
        labelled = {name: labels[name] for name in predictions if name in labels}
        if not labelled:
            raise UsageError(f"{gold} has labels of none of the skills that --skills names")
        report |= role_metrics(labelled, predictions)
    write_report(report, predictions, out, as_json)


def _read_gold(path: Path) -> dict[str, Any]:
    try:
        labelled = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(labelled, dict):
        raise UsageError(f"{path}: expected a JSON object: skill id -> [[first, last, role], …]")
    for skill_id, ranges in labelled.items():
        if not isinstance(ranges, list) or not all(map(_is_range, ranges)):
            raise UsageError(f"{path}: {skill_id}: expected a list of [first, last, role]")
    return labelled


def _is_range(row: object) -> bool:
    match row:
        case [int(first), int(last), str()]:
            return 1 <= first <= last
        case _:
            return False
