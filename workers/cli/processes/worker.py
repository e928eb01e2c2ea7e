"""`worker`: task workers of the distributed deployment."""

from __future__ import annotations

import sys

import click

from config.errors import UsageError
from workers.cli.common import print_to_stderr, read_settings


@click.command()
@click.option(
    "--queues",
    metavar="NAMES",
    help="Only these, with commas between: plan, fetch, ingest, embed_sections, link, "
    "maintain, query.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Children of each worker; each holds a model of its own.",
)
@click.option("--supervised", is_flag=True, hidden=True, help="End with who started it.")
@click.pass_context
def worker(ctx: click.Context, queues: str | None, processes: int, supervised: bool) -> None:
    """Work on tasks until interrupted, with the servers that the settings name.

    Without --queues every kind of work has a worker here: query; plan and ingest; fetch; link
    and maintain; embed_sections. Links have one writer, so keep one worker on `link`.

    \b
    Examples:
      skillbus worker
      skillbus worker --queues query --processes 4
    """
    settings = read_settings(ctx, long_running=True)
    if not settings.distributed:
        raise UsageError(
            "no servers are named (servers.broker, …): `skillbus serve` does all the work "
            "of an embedded library"
        )
    if queues is None:
        from workers.processes.supervisor import run_supervisor

        home = ctx.find_root().obj
        arguments = ["--home", str(home)] if home else []
        sys.exit(run_supervisor(arguments, processes, settings.workers.metrics_port))
    from workers.processes.worker import run_worker
    from workers.processes.workloads import parse_workload, resolve_queue_name

    names = queues.split(",")
    for name in names:
        if (present := resolve_queue_name(name)) != name:
            print_to_stderr(f"warning: the queue {name} is called {present} now")
    workload = parse_workload(names)
    sys.exit(run_worker(settings, workload, processes, print_to_stderr, supervised=supervised))
