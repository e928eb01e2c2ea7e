"""`status` and `config`: how things stand."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import click

from config.load_settings import get_config_path
from config.settings import Settings
from workers.backend.serve_client import ServeClient
from workers.cli.common import json_option, open_catalog, print_json, read_settings


@click.command()
@json_option
@click.pass_context
def status(ctx: click.Context, as_json: bool) -> None:
    """Show what the library holds and how far indexing and paging are.

    Of a distributed deployment also its servers, workers, what runs and what waits.
    """
    settings = read_settings(ctx)
    report = (
        read_deployment_status(settings) if settings.distributed else read_home_status(settings)
    )
    if as_json:
        print_json(report)
        return
    for line in _server_lines(report) if settings.distributed else _home_lines(report):
        click.echo(line)
    for line in _library_lines(report):
        click.echo(line)


def read_home_status(settings: Settings) -> dict[str, Any]:
    """The status of a home, from `serve` where it runs; raises UsageError without a library."""
    client = ServeClient.connect(settings.home)
    if client is not None:
        try:
            report: dict[str, Any] = client.get("/v1/status")
            return report
        finally:
            client.close()
    from tasks.journal.sqlite import SqliteJournal
    from workers.monitoring.status import home_status

    with open_catalog(settings) as graph:
        journal = SqliteJournal(settings.home / "journal.db")
        try:
            return home_status(settings, graph, journal, serving=False)
        finally:
            journal.close()


def read_deployment_status(settings: Settings) -> dict[str, Any]:
    """The status of a distributed deployment, as far as its servers answer."""
    from workers.backend.distributed import create_client_app
    from workers.monitoring.deployment_status import DeploymentStatus

    app = create_client_app(settings)
    deployment_status = DeploymentStatus(settings, app)
    try:
        return deployment_status.get_status(settings.servers.timeout_seconds)
    finally:
        deployment_status.close()
        app.close()


def _home_lines(report: Mapping[str, Any]) -> list[str]:
    lines = [f"trouble   {report['trouble']}"] if report["trouble"] else []
    served = "served" if report["serving"] else "not served"
    return [*lines, f"home      {report['home']} ({served})"]


def _server_lines(report: Mapping[str, Any]) -> list[str]:
    lines = [f"trouble   {report['trouble']}"] if report["trouble"] else []
    for server in report["servers"]:
        state = f"up, {1000 * server['seconds']:.0f} ms" if server["up"] else server["problem"]
        lines.append(f"server    {server['server']} {server['address']}: {state}")
    for worker in report["workers"] or ():
        queues = ", ".join(queue.removeprefix("skillbus.") for queue in worker["queues"])
        lines.append(f"worker    {worker['worker']}: {queues}")
        lines += [
            f"  runs    {task['task'].removeprefix('skillbus.')} for {task['seconds']:.0f} s: "
            f"{_first_ids(task['ids'])}"
            for task in worker["running"]
        ]
    if report["workers"] == []:
        lines.append("worker    none is alive; start `skillbus worker`")
    if report["queues"] is not None:
        waiting = [
            f"{queue['waiting']} {queue['queue'].removeprefix('skillbus.')}"
            for queue in report["queues"]
        ]
        lines.append(f"queues    {', '.join(waiting)}")
    return lines


def _first_ids(ids: list[str]) -> str:
    more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
    return ", ".join(ids[:3]) + more if ids else "all that waits"


def _library_lines(report: Mapping[str, Any]) -> list[str]:
    """Lines about catalog and journal; none about one that could not be asked."""
    lines = []
    if (counts := report["skills"]) is not None:
        lag = report.get("oldest_waiting_seconds")
        waiting = f"{counts['waiting']} waiting" + (f" (for {lag:.0f} s)" if lag else "")
        lines += [
            f"skills    {counts['published']} published, {waiting}, {counts['failed']} failed",
            f"paged     {report['paged']} ({report['paging_done']:.1%})",
            f"links     {report['links']} ({report['unlinked']} skills waiting)",
        ]
    if report["open_events"] is not None:
        oldest = max(report["oldest_event_seconds"], report["oldest_query_seconds"])
        since = f", the oldest for {oldest:.0f} s" if oldest else ""
        lines += [
            f"open      {report['open_events']} events, {report['open_queries']} queries{since}",
            f"dead      {report['dead_letters']} letters",
        ]
    lines += [_consumer_line(one) for one in report.get("submissions") or ()]
    return lines + [_source_line(one) for one in report["sources"] or ()]


def _consumer_line(consumer: Mapping[str, Any]) -> str:
    """A process that takes submissions in one line: what it has done, and how it gets on."""
    waiting = "?" if consumer["waiting"] is None else consumer["waiting"]
    last = consumer["last_message"]
    ago = f", the last {max(0.0, time.time() - last):.0f} s ago" if last else ""
    state = consumer["problem"] or ("connected" if consumer["connected"] else "not connected")
    return (
        f"consumer  {consumer['consumer']} on {consumer['broker']}: "
        f"{consumer['recorded']} recorded, {consumer['refused']} refused{ago}, "
        f"{consumer['replied']} replied, {waiting} waiting; {state}"
    )


def _source_line(source: Mapping[str, Any]) -> str:
    """A source in one line; of a git source also how long ago it was in step, and why not since."""
    line = f"source    {source['source_id']}: {source['root']}"
    if source["kind"] != "git":
        return line
    lag = source["lag_seconds"]
    line += f" (last synced {lag:.0f} s ago)" if lag is not None else " (never synced)"
    return line + (f": {source['last_error']}" if source["last_error"] else "")


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
    path = get_config_path(settings.home)
    click.echo(f"# {path}{'' if path.exists() else ' (not there)'}, then SKILLBUS_… variables")
    for name, value in values.items():
        if not isinstance(value, dict):
            click.echo(f"{name} = {value!r}")
    for name, value in values.items():
        if isinstance(value, dict):
            click.echo(f"\n[{name}]")
            for key, inner in value.items():
                click.echo(f"{key} = {inner!r}")
