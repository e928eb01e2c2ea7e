"""The broker in memory: consumers sleep, and every change that lets them go on wakes them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kombu.connection import Connection
from kombu.entity import Queue
from kombu.messaging import Consumer, Producer

from tasks.broker.broker_config import memory_broker_config
from tasks.broker.memory_transport import Channel

LONG = 60.0
"""Seconds that no test waits: a consumer that is not woken fails it."""


@pytest.fixture
def connection() -> Iterator[Connection]:
    config = memory_broker_config()
    with Connection(config.broker_url, transport=config.transport_class) as made:
        yield made


class Receiver:
    """Consumes a queue in a thread of its own, at most one unacknowledged message at a time."""

    def __init__(self, connection: Connection, queue: Queue, count: int) -> None:
        self.received: list[Any] = []
        self.each = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._receive, args=(connection, queue, count))
        self._thread.start()

    def _receive(self, connection: Connection, queue: Queue, count: int) -> None:
        with Consumer(connection.channel(), [queue], callbacks=[self._keep], prefetch_count=1):
            for _ in range(count):
                connection.drain_events(timeout=LONG)

    def _keep(self, body: object, message: Any) -> None:
        del body
        self.received.append(message)
        self.each.release()

    def wait(self) -> Any:
        """The next message."""
        assert self.each.acquire(timeout=LONG / 2)
        return self.received[-1]

    def end(self) -> None:
        """Wait until the thread has received all."""
        self._thread.join(LONG / 2)
        assert not self._thread.is_alive()


def _send(connection: Connection, queue: Queue, *bodies: str) -> None:
    for body in bodies:
        Producer(connection).publish(body, routing_key=queue.name)


def _declare(connection: Connection, name: str) -> Queue:
    queue = Queue(name)(connection.default_channel)
    queue.declare()
    queue.purge()
    return queue


@pytest.mark.parametrize("end", ["ack", "reject", "requeue"])
def test_a_sleeping_consumer_is_woken(connection: Connection, end: str) -> None:
    queue = _declare(connection, f"woken-{end}")
    receiver = Receiver(connection, queue, 2)
    _send(connection, queue, "first")
    first = receiver.wait()
    if end != "requeue":
        _send(connection, queue, "second")  # the limit of one keeps it in the queue
    getattr(first, end)()
    second = receiver.wait()
    second.ack()
    receiver.end()
    assert first.body == b"first"
    assert second.body == (b"first" if end == "requeue" else b"second")


def test_without_a_message_the_wait_ends_in_time(connection: Connection) -> None:
    queue = _declare(connection, "nothing")
    with Consumer(connection.channel(), [queue]), pytest.raises(TimeoutError):
        connection.drain_events(timeout=0.01)


def test_a_waiting_consumer_looks_into_its_queue_once(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    get: Callable[..., Any] = Channel._get

    def count(self: Channel, queue: str, timeout: float | None = None) -> Any:
        looks.append(queue)
        return get(self, queue, timeout)

    monkeypatch.setattr(Channel, "_get", count)
    queue = _declare(connection, "looked-into")
    with Consumer(connection.channel(), [queue]), pytest.raises(TimeoutError):
        connection.drain_events(timeout=0.5)
    # Once more after the wait, and once after anything that happened in between.
    assert 1 <= len(looks) <= 3
