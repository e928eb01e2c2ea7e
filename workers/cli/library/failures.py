"""`failures`: lists the skills that failed to ingest, or to be refined."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import click

from config.settings import Settings
from graph.entry_filter import EntryFilter
from graph.records import SkillState
from workers.cli.common import json_option, open_catalog, print_line, print_result, read_settings
from workers.library.entry_policy import PolicyResult
from workers.library.skill_data import entry_data
from workers.library.skill_reader import iterate_entries


@click.command()
@click.option(
    "--refinement",
    is_flag=True,
    help="List skills for which the language model gave invalid answers.",
)
@json_option
def failures(refinement: bool) -> None:
    """List skills that could not be ingested, with the reason."""
    settings = read_settings()
    if refinement:
        print_result(_list_invalid_answers(settings), _print_rows)
        return
    with open_catalog(settings) as graph:
        failed = iterate_entries(graph, EntryFilter(state=SkillState.FAILED))
        rows = [entry_data(entry, PolicyResult(0, None)) for entry in failed]
    print_result(rows, _print_rows)


def _list_invalid_answers(settings: Settings) -> list[dict[str, Any]]:
    from workers.cli.library.refine import select_stages
    from workers.library.refinement import open_progress

    settings = select_stages(settings, ())
    with open_catalog(settings) as graph, ExitStack() as stack:
        progress = open_progress(settings, graph, None, stack)
        progress.find_missing()
        return [
            {"skill_id": one.entry.skill_id, "stage": one.stage, "reason": one.reason}
            for one in progress.list_invalid()
        ]


def _print_rows(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        stage = f"{row['stage']}: " if "stage" in row else ""
        print_line(f"{row['skill_id']}: {stage}{row['reason']}")
    if not rows:
        click.echo("no failures")
