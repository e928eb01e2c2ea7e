"""Kombu transport in the memory of a process, whose consumers sleep until there is a message.

Kombu's own transport polls every queue each few milliseconds, which takes a tenth of a processor
from an idle service and delays messages until the next poll.
"""

from __future__ import annotations

import threading
import time
from queue import Empty
from typing import Any

from kombu.transport import memory
from typing_extensions import override


class _Changes:
    """Counts changes after which a consumer may have a message to take, and wakes waiting
    consumers."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0

    def count(self) -> int:
        with self._changed:
            return self._count

    def add(self) -> None:
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def wait(self, known: int, seconds: float | None) -> None:
        """Wait for more than `known` changes in total, at most `seconds`; None waits without
        limit."""
        with self._changed:
            self._changed.wait_for(lambda: self._count > known, seconds)


_changes = _Changes()
"""Changes of all queues of this process; Kombu also keeps these queues in one dictionary."""


class Channel(memory.Channel):
    """A channel that wakes consumers for new messages, and for room below the prefetch limit."""

    @override
    def _put(self, queue: str, message: Any, **kwargs: Any) -> None:
        super()._put(queue, message, **kwargs)
        _changes.add()

    @override
    def _put_fanout(
        self, exchange: str, message: Any, routing_key: str | None = None, **kwargs: Any
    ) -> None:
        super()._put_fanout(exchange, message, routing_key, **kwargs)
        _changes.add()

    @override
    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Acknowledge a message."""
        super().basic_ack(delivery_tag, multiple)
        _changes.add()

    @override
    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Drop a message, or put it back into its queue."""
        super().basic_reject(delivery_tag, requeue)
        _changes.add()


class Transport(memory.Transport):
    """Kombu's transport in memory, with a wait instead of polling."""

    Channel = Channel

    @override
    def drain_events(self, connection: Any, timeout: float | None = None, **kwargs: Any) -> None:
        """Deliver one message; raises TimeoutError if none comes in time (seconds)."""
        channels: Any = self.cycle
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            known = _changes.count()
            try:
                channels.get(self._deliver, timeout=timeout)
                return
            except Empty:
                left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError
            _changes.wait(known, left)
