"""`worker`: runs the tasks of a distributed deployment."""

from __future__ import annotations

import sys

import click

from config.errors import UsageError
from workers.cli.common import print_to_stderr, read_settings
from workers.processes.workloads import describe_workloads, parse_workload, resolve_queue_name


@click.command()
@click.option(
    "--queues",
    metavar="NAMES",
    help="Only these, comma-separated [default: all, with one worker each for "
    f"{describe_workloads()}].",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Child processes per worker; each loads its own model.",
)
@click.option("--supervisor", type=int, hidden=True, help="Process id of the parent, to end with.")
@click.pass_context
def worker(ctx: click.Context, queues: str | None, processes: int, supervisor: int | None) -> None:
    """Run tasks of a distributed deployment until interrupted.

    Links have one writer, so keep a single worker on `link`.

    \b
    Examples:
      skillbus worker
      skillbus worker --queues query --processes 4
    """
    settings = read_settings(long_running=True)
    if not settings.distributed:
        raise UsageError(
            "no servers configured (servers.broker, …); an embedded library is run by "
            "`skillbus serve`"
        )
    if queues is None:
        from workers.processes.supervisor import run_supervisor

        home = ctx.find_root().obj
        arguments = ["--home", str(home)] if home else []
        sys.exit(run_supervisor(settings.workers, arguments, processes))
    from workers.processes.worker import run_worker

    names = queues.split(",")
    for name in names:
        if (present := resolve_queue_name(name)) != name:
            print_to_stderr(f"warning: the queue {name} is called {present} now")
    workload = parse_workload(names)
    sys.exit(run_worker(settings, workload, processes, print_to_stderr, supervisor=supervisor))
