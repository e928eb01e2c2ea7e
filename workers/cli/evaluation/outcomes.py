"""`eval outcomes`: ranks the library for its own labelled prompts."""

from __future__ import annotations

from typing import Any

import click

from config.errors import UsageError
from workers.cli.common import json_option, read_settings
from workers.cli.evaluation.options import (
    keep_option,
    keep_run,
    open_library,
    wait_option,
    without_option,
    write_report,
)


@click.command("outcomes")
@without_option
@keep_option
@wait_option
@json_option
def outcomes(without: tuple[str, ...], keep: bool, wait: bool) -> None:
    """Rank the library for its own labelled prompts.

    These are tasks for which a person reported the right skills: in the console, with `skillbus
    outcome`, over HTTP or MCP. For each prompt, the memory of past tasks ignores the reports about
    this task.

    \b
    Example:
      skillbus eval outcomes
    """
    from workers.evaluation.runs.evaluate_labels import evaluate_labels
    from workers.evaluation.runs.make_run import measure

    settings = read_settings()
    with open_library(settings, wait) as services:
        prompts = evaluate_labels(services, without)
        skills = len(services.library.latest.pointers)
    if not prompts:
        raise UsageError(
            "no prompt is labelled yet: report the right skill for a task in the console or with "
            "`skillbus outcome`"
        )
    report: dict[str, Any] = {"prompts": len(prompts)}
    report |= {name: one.mean for name, one in measure(prompts).items()}
    write_report(report, None, None)
    if keep:
        keep_run(settings, "outcomes", "labelled prompts", skills, without, prompts)
