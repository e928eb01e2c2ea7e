"""`eval roles`: classifies the lines of skills."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from config.errors import UsageError
from workers.cli.common import json_option, read_settings
from workers.cli.evaluation.options import check_line_ranges, open_library, out_option, write_report


@click.command("roles")
@click.option("--skills", "skill_ids", required=True, help="Comma-separated ids.")
@out_option
@click.option(
    "--gold",
    type=click.Path(path_type=Path),
    help="Labelled ranges, for metrics over those --skills that they label.",
)
@click.option(
    "--weights",
    type=click.Path(path_type=Path),
    help="Weights of `train roles`. [default: the roles stored in the library]",
)
@json_option
def roles(skill_ids: str, out: Path | None, gold: Path | None, weights: Path | None) -> None:
    """Classify every line of some skills by its role.

    \b
    Example:
      skillbus eval roles --skills examples:trip-cleaning,examples:month-close --out roles.json
    """
    from skills.roles.classifier import parse_weights
    from workers.evaluation.metrics import role_metrics
    from workers.evaluation.predictions import predict_roles, read_published_revisions
    from workers.library.user_files import read_bytes
    from workers.training.roles.labels import read_labels

    ids = [part.strip() for part in skill_ids.split(",") if part.strip()]
    if not ids:
        raise UsageError("--skills: give at least one skill id")
    classifier = None if weights is None else parse_weights(read_bytes(weights))
    labels = {} if gold is None else read_labels([gold])
    labelled = {name: labels[name] for name in dict.fromkeys(ids) if name in labels}
    if gold is not None and not labelled:
        raise UsageError(f"{gold} labels none of these skills; name labelled skills with --skills")
    with open_library(read_settings(), wait=False) as services:
        predictions = predict_roles(services, ids, classifier)
        for name, revision in read_published_revisions(services, list(labelled)).items():
            for first, last, _ in labelled[name]:
                check_line_ranges(f"{gold}: {name}", [[first, last]], len(revision.parsed.lines))
    report: dict[str, Any] = {"skills": len(predictions)} | role_metrics(labelled, predictions)
    write_report(report, predictions, out)
