"""Celery consumer of workers on a broker: unreadable messages become dead letters."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import structlog
from celery.worker import state
from celery.worker.consumer import Consumer
from kombu.exceptions import KombuError

from config.errors import PermanentError, TransientError
from tasks.journal.protocol import (
    MAX_BODY_CHARACTERS,
    DeadLetter,
    DeadLetterStore,
    new_dead_letter_id,
)
from tasks.message import (
    TEXT_HEADERS,
    UNREADABLE_HEADER,
    parse_task_ids,
    parse_text_header,
)
from tasks.metrics_recorder import MetricsRecorder, NullMetrics
from tasks.policies import POLICIES, resolve_task_name

log = structlog.get_logger()

_JOURNAL_RETRY_SECONDS = 0.5
_CONNECT_RETRY = {"interval_start": 1, "interval_step": 1, "interval_max": 3}
_DELAYED_DELIVERY = "DelayedDelivery"


class DeadLetterConsumer(Consumer):  # type: ignore[misc]  # celery carries no annotations
    """Writes a dead letter for each message that is not JSON, too large, of an unknown task or
    malformed.

    Such a message is acknowledged after its dead letter is written; until then the consumer takes
    no other message. Tasks receive a list of ids; headers that skillbus does not write are dropped.
    """

    journal: ClassVar[Callable[[], DeadLetterStore]]
    max_message_bytes: ClassVar[int]
    metrics: ClassVar[MetricsRecorder] = NullMetrics()

    class Blueprint(Consumer.Blueprint):  # type: ignore[misc]  # celery carries no annotations
        """Celery's steps without the queues for delayed messages, which skillbus does not use."""

        default_steps: ClassVar = [
            step
            for step in Consumer.Blueprint.default_steps
            if not str(step).endswith(_DELAYED_DELIVERY)
        ]

    def ensure_connected(self, conn: Any) -> Any:
        """Return the connection once the broker accepts it.

        Retries every 1 to 3 s without limit; Celery would wait longer after each failure.
        """
        conn.ensure_connection = partial(conn.ensure_connection, **_CONNECT_RETRY)
        return super().ensure_connected(conn)

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Callable[[Any], None]:
        """Return Celery's handler, which is called after the message is validated."""
        handle = super().create_task_handler(*args, **kwargs)

        def validate_and_handle(message: Any) -> None:
            try:
                message.headers = _validate_headers(message, type(self).max_message_bytes)
            except PermanentError as error:
                self._write_dead_letter(message, str(error))
            else:
                handle(message)

        return validate_and_handle

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        """Write a dead letter for a message that kombu cannot decode."""
        self._write_dead_letter(message, f"invalid {message.content_type or 'JSON'}: {exc}")

    def on_invalid_task(self, body: Any, message: Any, exc: Exception) -> None:
        """Write a dead letter for a task message that Celery rejects."""
        del body
        self._write_dead_letter(message, f"invalid task message: {exc}")

    def _write_dead_letter(self, message: Any, reason: str) -> None:
        """Write the dead letter, retrying until the journal accepts it; then acknowledge it.

        If the worker is asked to stop meanwhile, the message goes back to the queue.
        """
        dead_letter = _make_dead_letter(message, reason)
        journal_down = False
        while True:
            try:
                type(self).journal().add_dead_letter(dead_letter)
                break
            except TransientError as error:
                if not journal_down:
                    log.error("unreadable message cannot be dead-lettered yet", reason=str(error))
                journal_down = True
            if state.should_stop is not None or state.should_terminate is not None:
                message.requeue()
                return
            time.sleep(_JOURNAL_RETRY_SECONDS)
        log.warning("message dead-lettered", letter_id=dead_letter.id, reason=reason)
        type(self).metrics.record_dead_letter("")
        message.ack()


def _make_dead_letter(message: Any, reason: str) -> DeadLetter:
    now, body = time.time(), message.body
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body or "")
    trace_id = (message.headers or {}).get("trace_id")
    trace_id = trace_id[:200] if isinstance(trace_id, str) else ""
    return DeadLetter(
        new_dead_letter_id(now), "", (), reason, 0, trace_id, text[:MAX_BODY_CHARACTERS], now
    )


def _validate_headers(message: Any, max_message_bytes: int) -> dict[str, Any]:
    """Return the headers to keep; raises PermanentError unless the message is
    a valid task message."""
    size = len(message.body or b"")
    if size > max_message_bytes:
        raise PermanentError(f"{size} bytes, more than workers.message_bytes allows")
    headers = message.headers or {}
    if UNREADABLE_HEADER in headers:
        raise PermanentError(f"unreadable message: {parse_text_header(headers, UNREADABLE_HEADER)}")
    if "task" not in headers:
        raise PermanentError("no task name in the headers")
    task = resolve_task_name(parse_text_header(headers, "task"))
    if task not in POLICIES:
        raise PermanentError(f"unknown task {task!r}")
    task_id = parse_text_header(headers, "id")
    try:
        content = message.decode()
    except KombuError as error:
        raise PermanentError(f"invalid {message.content_type or 'JSON'}: {error}") from None
    parse_task_ids(content)
    kept: dict[str, Any] = {"lang": "py", "task": task, "id": task_id, "root_id": task_id}
    kept |= {"ignore_result": headers.get("ignore_result") is not False}
    for name, max_characters in TEXT_HEADERS.items():
        if headers.get(name) is not None:
            kept[name] = parse_text_header(headers, name, max_characters)
    return kept
