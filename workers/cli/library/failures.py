"""`failures`: lists the skills that failed to ingest."""

from __future__ import annotations

import click

from graph.records import EntryFilter, SkillState
from tasks.query.policy_filter import make_policy
from workers.cli.common import json_option, open_catalog, print_json, read_settings
from workers.library.skill_data import entry_data
from workers.library.skill_reader import iterate_entries


@click.command()
@json_option
@click.pass_context
def failures(ctx: click.Context, as_json: bool) -> None:
    """List skills that failed to ingest, each with file, line and reason."""
    settings = read_settings(ctx)
    with open_catalog(settings) as graph:
        failed = list(iterate_entries(graph, EntryFilter(state=SkillState.FAILED)))
        policy = make_policy(settings, graph.list_sources())
    if as_json:
        print_json([entry_data(entry, policy) for entry in failed])
        return
    for entry in failed:
        click.echo(f"{entry.skill_id}: {entry.reason}")
    if not failed:
        click.echo("no failures")
