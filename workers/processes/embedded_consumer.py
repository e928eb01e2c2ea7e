"""Celery's consumer for workers that live in threads of the process they serve."""

from __future__ import annotations

from typing import Any

from celery.worker.consumer import Consumer
from celery.worker.loops import synloop

_DRAIN_TIMEOUT_SECONDS = 0.05


class ThreadedConsumer(Consumer):  # type: ignore[misc]  # celery carries no annotations
    """Notices within a moment that its worker is to stop; Celery's own takes up to two seconds."""

    @staticmethod
    def loop(worker: Any, connection: Any, *rest: Any) -> None:
        """Celery's loop over a connection that waits less long for messages."""
        synloop(worker, _ShortTimeoutConnection(connection), *rest)


class _ShortTimeoutConnection:
    """A broker connection whose waits are short."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def drain_events(self, timeout: float) -> None:
        """Deliver one message, or raise `socket.timeout` soon."""
        self._connection.drain_events(timeout=min(timeout, _DRAIN_TIMEOUT_SECONDS))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)
