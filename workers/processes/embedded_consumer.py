"""Celery consumer of workers that run in threads of an embedded deployment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from celery.worker.consumer import Consumer
from celery.worker.loops import synloop

_DRAIN_TIMEOUT_SECONDS = 0.05


class ThreadedConsumer(Consumer):  # type: ignore[misc]  # celery carries no annotations
    """Consumes some of the queues of its application, and stops within 50 ms of a request.

    Celery's own consumer takes all queues, and up to two seconds to stop.
    """

    def __init__(self, *args: Any, queues: Sequence[str], **options: Any) -> None:
        self.queues = frozenset(queues)
        super().__init__(*args, **options)

    @staticmethod
    def loop(
        worker: Any, connection: Any, consumer: Any, blueprint: Any, hub: Any, qos: Any, *rest: Any
    ) -> None:
        """Run Celery's loop over a connection with a short receive timeout."""
        consumer.queues = [one for one in consumer.queues if one.name in worker.queues]
        # Celery's loop updates it after the worker is ready, when a stop may
        # already close the consumer.
        qos.update()
        synloop(worker, _ShortTimeoutConnection(connection), consumer, blueprint, hub, qos, *rest)


class _ShortTimeoutConnection:
    """A broker connection with a short receive timeout."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def drain_events(self, timeout: float) -> None:
        """Deliver one message; raises `socket.timeout` if none comes in time."""
        self._connection.drain_events(timeout=min(timeout, _DRAIN_TIMEOUT_SECONDS))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)
