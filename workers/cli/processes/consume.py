"""`consume`: events and queries from a queue that any program can write to."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from config.errors import UsageError
from config.settings import Settings
from workers.cli.common import note, read_settings

if TYPE_CHECKING:
    from workers.monitoring.metrics import OneProcess
    from workers.queue.service import Submissions


@click.command()
@click.pass_context
def consume(ctx: click.Context) -> None:
    """Take events and queries from the queue `skillbus.events` until interrupted, and reply.

    The broker is that of `submissions.broker`: RabbitMQ's queue or Redis' stream of that name. With
    servers, run as many as you like; an embedded library is worked on by this process itself, and
    `serve` does the same beside all else. On `workers.metrics_port` it tells how it is doing.

    \b
    Examples:
      SKILLBUS_SUBMISSIONS__BROKER=redis://127.0.0.1:6379/0 skillbus consume
    """
    from workers.backend.deployment import find_serve, open_channel
    from workers.monitoring.metrics import OneProcess
    from workers.queue.broker import broker_of
    from workers.queue.protocol import QUEUE
    from workers.queue.service import Submissions

    settings = read_settings(ctx, serving=True)
    broker = broker_of(settings)
    served = find_serve(settings)
    if served is not None:
        served.close()
        raise UsageError(
            f"`skillbus serve` runs on {settings.home}: start it with submissions.broker set, "
            "and it takes these messages itself"
        )
    told = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: told.set())
    figures = OneProcess()
    with (
        open_channel(settings, writable=True, measures=figures.measures) as channel,
        Submissions(channel, figures.measures) as submissions,
        _told_on_port(settings, figures, submissions),
    ):
        figures.add_gauges(channel.report)
        note(f"taking {QUEUE} from {broker.address}")
        told.wait()


@contextmanager
def _told_on_port(
    settings: Settings, figures: OneProcess, submissions: Submissions
) -> Iterator[None]:
    """Answer on `workers.metrics_port`, where that is not 0."""
    if not settings.workers.metrics_port:
        yield
        return
    from workers.monitoring.metrics_port import MetricsPort

    port = MetricsPort(settings, figures.text, submissions.unready)
    port.start()
    try:
        yield
    finally:
        port.stop()
