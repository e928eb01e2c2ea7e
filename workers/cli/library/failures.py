"""`failures`: lists the skills that failed to ingest, or to be refined."""

from __future__ import annotations

from contextlib import ExitStack

import click

from config.settings import Settings
from graph.entry_filter import EntryFilter
from graph.records import SkillState
from skills.bundle.escaping import escape_terminal_line
from workers.cli.common import json_option, open_catalog, print_json, read_settings
from workers.library.entry_policy import Standing
from workers.library.skill_data import entry_data
from workers.library.skill_reader import iterate_entries


@click.command()
@click.option(
    "--refinement",
    is_flag=True,
    help="Instead, the skills about which the language model gave invalid answers.",
)
@json_option
@click.pass_context
def failures(ctx: click.Context, refinement: bool, as_json: bool) -> None:
    """List skills that could not be ingested, with the reason."""
    settings = read_settings(ctx)
    if refinement:
        _print_invalid_answers(settings, as_json)
        return
    with open_catalog(settings) as graph:
        failed = list(iterate_entries(graph, EntryFilter(state=SkillState.FAILED)))
    if as_json:
        print_json([entry_data(entry, Standing(0, None)) for entry in failed])
        return
    for entry in failed:
        click.echo(escape_terminal_line(f"{entry.skill_id}: {entry.reason}"))
    if not failed:
        click.echo("no failures")


def _print_invalid_answers(settings: Settings, as_json: bool) -> None:
    from workers.cli.library.refine import select_stages
    from workers.library.refinement import RefinementProgress

    settings = select_stages(settings, ())
    with open_catalog(settings) as graph, ExitStack() as stack:
        progress = RefinementProgress(settings, graph, None, stack)
        progress.find_missing()
        found = progress.list_invalid()
    if as_json:
        print_json(
            [
                {"skill_id": one.entry.skill_id, "stage": one.stage, "reason": one.reason}
                for one in found
            ]
        )
        return
    for one in found:
        click.echo(escape_terminal_line(f"{one.entry.skill_id}: {one.stage}: {one.reason}"))
    if not found:
        click.echo("no invalid answers")
