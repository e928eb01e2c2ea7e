"""`consume`: events and queries from a queue that any program can write to."""

from __future__ import annotations

import signal
import threading

import click

from config.errors import UsageError
from workers.cli.common import note, read_settings


@click.command()
@click.pass_context
def consume(ctx: click.Context) -> None:
    """Take events and queries from the queue `skillbus.events` until interrupted, and reply.

    The broker is that of `submissions.broker`: RabbitMQ's queue or Redis' stream of that name. With
    servers, run as many as you like; an embedded library is worked on by this process itself, and
    `serve` does the same beside all else.

    \b
    Examples:
      SKILLBUS_SUBMISSIONS__BROKER=redis://127.0.0.1:6379/0 skillbus consume
    """
    from workers.deployment import find_serve, open_channel
    from workers.submissions.broker import broker_of
    from workers.submissions.carrier import QUEUE
    from workers.submissions.service import Submissions

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
    with open_channel(settings, writable=True) as channel, Submissions(channel):
        note(f"taking {QUEUE} from {broker.address}")
        told.wait()
