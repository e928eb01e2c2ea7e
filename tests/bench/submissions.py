"""What asking by queue costs: from a message written to its answer read, on Redis and RabbitMQ.

    python -m tests.bench.submissions [--home HOME] [--queries N]

Starts both brokers, and takes messages in a process that answers itself. Asks in turn by queue,
over connections that stay open, and in the process. Prints milliseconds: median and 95th percentile
of both, and of what the queue takes beyond the other for one task. Works on a copy of the home, by
default a made-up one of ten skills.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
from redis import Redis

from config.logging import configure_logging
from config.secrets import add_password
from config.settings import Settings
from deploy.stack import Server, Stack
from skills.events import QueryAsked
from tests.bench.http import ORIGIN, copied, tasks_of
from tests.support.servers.submitting import STREAM, query
from workers.backend.embedded import EmbeddedBackend
from workers.queue.service import SubmissionService

REPLIES = "skillbus.replies.bench"
PAUSE_SECONDS = 0.02

Ask = Callable[[str], Any]
"""Writes an event, and returns its answer."""


@contextmanager
def on_redis(address: str) -> Iterator[Ask]:
    """Asks by Redis' streams."""
    client: Any = Redis.from_url(address, decode_responses=True, protocol=2)
    last = "0"

    def ask(text: str) -> Any:
        nonlocal last
        client.xadd(STREAM, {"event": text, "reply_to": REPLIES})
        [[_, [[last, fields]]]] = client.xread({REPLIES: last}, count=1, block=30_000)
        return json.loads(fields["event"])

    yield ask
    client.close()


@contextmanager
def on_rabbitmq(address: str) -> Iterator[Ask]:
    """Asks by RabbitMQ's queues, and waits for the confirm of each message as a sender should."""
    connection = pika.BlockingConnection(pika.URLParameters(address))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare(REPLIES, durable=True)
    properties = pika.BasicProperties(delivery_mode=2, reply_to=REPLIES)
    arriving = channel.consume(REPLIES, auto_ack=True, inactivity_timeout=30)

    def ask(text: str) -> Any:
        channel.basic_publish("", STREAM, text, properties, mandatory=True)
        _, _, body = next(arriving)
        return json.loads(body)

    yield ask
    connection.close()


CLIENTS = {"redis": on_redis, "rabbitmq": on_rabbitmq}


def measure(home: Path, server: Server, queries: int) -> dict[str, Any]:
    """Ask both ways, in turn."""
    given = {"broker": server.url, "broker_password_file": server.password_file}
    settings = Settings(submissions=given).model_copy(update={"home": home})
    tasks = itertools.islice(itertools.cycle(tasks_of(home)), queries + 5)
    times: dict[str, list[float]] = {"inside": [], "by_queue": []}
    with (
        EmbeddedBackend(settings, writable=True) as backend,
        SubmissionService(backend) as submissions,
    ):
        backend.warm_up()
        submissions.consumer.connected.wait(30)
        with CLIENTS[server.name](add_password(server.url, server.password)) as ask:
            for number, task in enumerate(tasks):
                text = json.dumps(query(f"{task} {number}"))
                times["inside"].append(_timed(_inside(backend), f"{task} {number} inside"))
                times["by_queue"].append(_timed(ask, text))
    warm = {name: values[5:] for name, values in times.items()}
    differences = [q - i for q, i in zip(warm["by_queue"], warm["inside"], strict=True)]
    found: dict[str, Any] = {"broker": server.name, "queries": queries}
    for name, values in {**warm, "beyond": differences}.items():
        found[f"{name}_p50"] = round(statistics.median(values), 1)
        found[f"{name}_p95"] = round(statistics.quantiles(values, n=20)[-1], 1)
    return found


def _inside(backend: EmbeddedBackend) -> Ask:
    return lambda task: backend.answer_query(QueryAsked(task=task), ORIGIN)


def _timed(ask: Ask, text: str) -> float:
    started = time.perf_counter()
    answer = ask(text)
    took = 1000 * (time.perf_counter() - started)
    assert answer.get("type", "skillbus.query.answered.v1") == "skillbus.query.answered.v1", answer
    time.sleep(PAUSE_SECONDS)
    return took


def main() -> None:
    """Measure, and print one line of JSON a broker."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--home", type=Path)
    parser.add_argument("--queries", type=int, default=200)
    asked = parser.parse_args()
    configure_logging("error")
    with tempfile.TemporaryDirectory() as folder, Stack(Path(folder), tethered=True) as stack:
        stack.launch(list(CLIENTS))
        for name in CLIENTS:
            server = stack.server(name)
            server.wait_ready()
            with copied(asked.home) as home:
                print(json.dumps(measure(home, server, asked.queries)), flush=True)


if __name__ == "__main__":
    main()
