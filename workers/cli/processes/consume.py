"""`consume`: accepts events and queries from a message queue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from config.errors import UsageError
from config.settings import Settings
from workers.cli.common import print_to_stderr, read_settings

if TYPE_CHECKING:
    from workers.monitoring.metrics import ProcessMetrics
    from workers.queue.service import SubmissionService


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
    # Slow to import.
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
            f"`skillbus serve` runs on {settings.home}: start it with submissions.broker set, "
            "and it consumes these messages itself"
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
