"""`status` and `config`: how things stand."""

from __future__ import annotations

from typing import Any

import click

from config.settings import Settings, config_path
from workers.cli.common import json_option, open_catalog, print_json, read_settings
from workers.client import ServeClient

_LOW_DISK_BYTES = 500_000_000


@click.command()
@json_option
@click.pass_context
def status(ctx: click.Context, as_json: bool) -> None:
    """Show what the library holds and how far indexing and paging are."""
    settings = read_settings(ctx)
    report = read_status(settings)
    if as_json:
        print_json(report)
        return
    if report["trouble"]:
        click.echo(f"trouble   {report['trouble']}")
    counts = report["skills"]
    click.echo(f"home      {report['home']} ({'served' if report['serving'] else 'not served'})")
    click.echo(
        f"skills    {counts['published']} published, {counts['waiting']} waiting, "
        f"{counts['failed']} failed"
    )
    click.echo(f"paged     {report['paged']} ({report['paging_done']:.1%})")
    click.echo(f"links     {report['links']} ({report['unlinked']} skills waiting)")
    click.echo(f"open      {report['open_events']} events, {report['open_queries']} queries")
    for source in report["sources"]:
        click.echo(f"source    {source['source_id']}: {source['root']}")


def read_status(settings: Settings) -> dict[str, Any]:
    """The status of a home, from `serve` where it runs; raises UsageError without a library."""
    client = ServeClient.find(settings.home)
    if client is not None:
        try:
            report: dict[str, Any] = client.get("/v1/status")
            return report
        finally:
            client.close()
    from tasks.sqlite_journal import SqliteJournal
    from workers.status import status_of

    with open_catalog(settings) as graph:
        journal = SqliteJournal(settings.home / "journal.db")
        try:
            return status_of(settings, graph, journal, serving=False)
        finally:
            journal.close()


@click.group()
def config() -> None:
    """Show settings."""


@config.command("show")
@json_option
@click.pass_context
def show_config(ctx: click.Context, as_json: bool) -> None:
    """Show every setting in force, and the file and variables that may set it."""
    settings = read_settings(ctx)
    values = settings.model_dump(mode="json")
    if as_json:
        print_json(values)
        return
    path = config_path(settings.home)
    click.echo(f"# {path}{'' if path.exists() else ' (not there)'}, then SKILLBUS_… variables")
    for name, value in values.items():
        if not isinstance(value, dict):
            click.echo(f"{name} = {value!r}")
    for name, value in values.items():
        if isinstance(value, dict):
            click.echo(f"\n[{name}]")
            for key, inner in value.items():
                click.echo(f"{key} = {inner!r}")
