"""`serve`, `gateway`, `mcp`, `consume` and `worker`: commands that run until interrupted.

What they run is slow to import, and each needs its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from config.errors import UsageError
from config.settings import Settings
from workers.cli.common import print_to_stderr, read_settings
from workers.processes.workloads import describe_workloads, parse_workload, resolve_queue_name

if TYPE_CHECKING:
    from workers.monitoring.metrics import ProcessMetrics
    from workers.queue.service import SubmissionService

_unprotected_option = click.option(
    "--unprotected",
    is_flag=True,
    help="Allow any address without a token; use it only behind another access control.",
)


@click.command()
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Also serve HTTP on this address; if it is not loopback, a token must exist.",
)
@_unprotected_option
def serve(listen: str | None, unprotected: bool) -> None:
    """Run workers, watcher and gateway until interrupted.

    While it runs, other commands use it. Every synced directory is watched. The gateway listens on
    the socket `serve.sock` in the home.

    \b
    Examples:
      skillbus serve
      skillbus serve --listen 127.0.0.1:8765
    """
    from workers.processes.http_server import resolve_listen_address
    from workers.processes.serve import run_serve

    settings = read_settings(long_running=True)
    address = None
    if listen is not None:
        address = resolve_listen_address(settings, listen, unprotected)
    run_serve(settings, address, print_to_stderr, unprotected)


@click.command()
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:8765",
    show_default=True,
    help="Address to listen on; if it is not loopback, a token must exist.",
)
@_unprotected_option
def gateway(listen: str, unprotected: bool) -> None:
    """Serve HTTP for a distributed deployment until interrupted.

    For an embedded library use `skillbus serve --listen`.

    \b
    Example:
      skillbus tokens add agents
      skillbus gateway --listen 127.0.0.1:8765
    """
    from workers.processes.gateway import run_gateway
    from workers.processes.http_server import resolve_listen_address

    settings = read_settings(long_running=True)
    run_gateway(
        settings,
        resolve_listen_address(settings, listen, unprotected),
        print_to_stderr,
        unprotected,
    )


@click.command()
def mcp() -> None:
    """Serve an agent over MCP on standard input and output.

    MCP is the Model Context Protocol. Agents start this command themselves. It uses a running
    `serve`, or the workers of a distributed deployment; without either, it loads the model and
    answers queries itself. It does not change the skills of the library.

    \b
    Example:
      claude mcp add skills -- skillbus mcp
    """
    from workers.mcp.stdio import run_stdio

    run_stdio(read_settings(is_server=True))


@click.command()
def consume() -> None:
    """Consume events and queries from a queue until interrupted.

    The queue of RabbitMQ, or the stream of Redis, is `skillbus.events` on `submissions.broker`;
    replies go to the queue that a message names. A distributed deployment may have any number of
    consumers. For an embedded library this process also does the work; with `skillbus serve` it is
    not needed. Metrics and health checks are on `workers.metrics_port`.

    \b
    Examples:
      SKILLBUS_SUBMISSIONS__BROKER=redis://127.0.0.1:6379/0 skillbus consume
    """
    from workers.backend.factory import find_serve, open_store_backend
    from workers.monitoring.metrics import ProcessMetrics
    from workers.processes.current_process import stop_on_signals
    from workers.queue.broker import get_submission_broker
    from workers.queue.protocol import QUEUE
    from workers.queue.service import SubmissionService
    from workers.tracing.start import tracing

    settings = read_settings(long_running=True)
    broker = get_submission_broker(settings)
    serve = find_serve(settings)
    if serve is not None:
        serve.close()
        raise UsageError(
            f"`skillbus serve` runs on {settings.home}: restart it with submissions.broker set, "
            "and it consumes the messages itself"
        )
    process_metrics = ProcessMetrics()
    with (
        stop_on_signals() as stop_requested,
        tracing(settings.tracing, process_metrics.recorder),
        open_store_backend(settings, writable=True, metrics=process_metrics.recorder) as backend,
        SubmissionService(backend, process_metrics.recorder) as submissions,
        _metrics_server(settings, process_metrics, submissions),
    ):
        process_metrics.add_gauges(backend.get_status)
        print_to_stderr(f"consuming {QUEUE} from {broker.address}")
        stop_requested.wait()


@contextmanager
def _metrics_server(
    settings: Settings, process_metrics: ProcessMetrics, submissions: SubmissionService
) -> Iterator[None]:
    """Serve metrics on `workers.metrics_port`, unless it is 0."""
    if not settings.workers.metrics_port:
        yield
        return
    from workers.monitoring.metrics_server import MetricsServer

    port = MetricsServer(settings, process_metrics.render, submissions.not_ready_reasons)
    port.start()
    try:
        yield
    finally:
        port.stop()


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
            "no servers are configured (servers.broker, …); for an embedded library, run "
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
