"""Celery's consumer for workers on a broker: what it cannot read becomes a dead letter."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar

import structlog
from celery.worker.consumer import Consumer

from config.errors import TransientError
from tasks.journal import LARGEST_BODY, DeadLetter, Journal, new_letter_id

log = structlog.get_logger()


class DeadLetterConsumer(Consumer):  # type: ignore[misc]  # celery carries no annotations
    """Buries messages that are no JSON, too large, of an unknown task or of another shape.

    A message is acknowledged once its letter is written; until then it stays in the queue.
    """

    journal: ClassVar[Callable[[], Journal]]
    largest: ClassVar[int]

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Callable[[Any], None]:
        """Celery's handler behind a check of the size."""
        handle = super().create_task_handler(*args, **kwargs)

        def checked(message: Any) -> None:
            size = len(message.body or b"")
            if size > type(self).largest:
                self._bury(message, f"{size} bytes, more than workers.message_bytes allows")
            else:
                handle(message)

        return checked

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        """Bury a message that is not JSON."""
        self._bury(message, f"not readable as {message.content_type or 'JSON'}: {exc}")

    def on_unknown_message(self, body: Any, message: Any) -> None:
        """Bury a message that is no task."""
        del body
        self._bury(message, "no task: its headers name none")

    def on_unknown_task(self, body: Any, message: Any, exc: Exception) -> None:
        """Bury a task of a name that this version does not know."""
        del body, exc
        self._bury(message, f"unknown task {str(message.headers.get('task'))[:200]!r}")

    def on_invalid_task(self, body: Any, message: Any, exc: Exception) -> None:
        """Bury a task whose message has another shape."""
        del body
        self._bury(message, f"not the message of a task: {exc}")

    def _bury(self, message: Any, reason: str) -> None:
        now = time.time()
        body = message.body
        text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body)
        trace_id = str((message.headers or {}).get("trace_id") or "")
        letter = DeadLetter(
            new_letter_id(now), "", (), reason, 0, trace_id, text[:LARGEST_BODY], now
        )
        try:
            type(self).journal().bury(letter)
        except TransientError as error:
            log.error("a message can be neither read nor buried", reason=str(error))
            message.requeue()
            return
        log.warning("message buried", letter_id=letter.id, reason=reason)
        message.ack()
