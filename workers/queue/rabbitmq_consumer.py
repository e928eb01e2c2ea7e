"""Submissions on RabbitMQ: a quorum queue with manual acknowledgement."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from typing_extensions import override

from config.errors import SkillbusError
from tasks.broker.rabbitmq_properties import keep_unreadable_messages
from tasks.message import UNREADABLE_HEADER
from workers.queue.broker import Broker
from workers.queue.protocol import CONTENT_TYPE, QUEUE, Message, MessageConsumer, ReceivedMessage
from workers.queue.rabbitmq_reply_publisher import RabbitReplyPublisher

_HEARTBEAT_SECONDS = 30
_HEARTBEAT_CHECK_SECONDS = 1.0
_CONTENT_TYPES = (CONTENT_TYPE, "application/json", "text/plain", "application/octet-stream", "")
"""Accepted content types; the last three are defaults of client libraries."""
_ENCODINGS = ("utf-8", "utf8", "us-ascii", "binary", "identity", "")
_MAX_SHOWN_CHARACTERS, _MAX_REASON_CHARACTERS = 80, 200
_DELIVERY_LIMIT_VERSION = 4
"""Major version from which RabbitMQ drops a message after 20 deliveries, unless configured."""
_REGISTRATION_SECONDS = 1.0
"""Before that version, RabbitMQ persists the location of a new quorum queue only after half a
second, and loses the queue if it is killed earlier: https://github.com/rabbitmq/ra/pull/443."""


class RabbitMessageConsumer(RabbitReplyPublisher, MessageConsumer):
    """Consumes the queue `skillbus.events`, which it declares if it is missing."""

    heartbeat_seconds = _HEARTBEAT_SECONDS

    def __init__(self, broker: Broker) -> None:
        keep_unreadable_messages()
        super().__init__(broker)
        self._received: deque[ReceivedMessage] = deque()
        self._heartbeat_at = time.monotonic()
        try:
            with self._translate_errors():
                self._declare_queue()
                self._control_channel = self._connection.channel()
                self._consume_channel = self._connection.channel()
                # Some encodings that a message may name take hours to decode.
                self._consume_channel.auto_decode = False
                self._consume_channel.basic_qos(0, broker.settings.prefetch, False)
                self._consume_channel.basic_consume(QUEUE, callback=self._on_message)
        except SkillbusError:
            self.close()
            raise

    def _declare_queue(self) -> None:
        """Declare the queue; an existing one is used with the arguments it has."""
        passive_channel = self._connection.channel()
        with suppress(*self._connection.channel_errors):
            passive_channel.queue_declare(QUEUE, passive=True)
            passive_channel.close()
            return
        version = str(self._connection.connection.server_properties.get("version", "0"))
        is_old = int(version.partition(".")[0]) < _DELIVERY_LIMIT_VERSION
        limit = {} if is_old else {"x-delivery-limit": -1}
        arguments = {"x-queue-type": "quorum", **limit}
        with self._connection.channel() as channel:
            channel.queue_declare(QUEUE, durable=True, auto_delete=False, arguments=arguments)
        if is_old:
            time.sleep(_REGISTRATION_SECONDS)

    def _on_message(self, message: Any) -> None:
        properties = message.properties
        received_message = Message(
            bytes(message.body),
            reply_to=str(properties.get("reply_to") or ""),
            correlation_id=str(properties.get("correlation_id") or ""),
            problem=_find_problem(properties),
        )
        self._received.append(
            ReceivedMessage(str(message.delivery_info["delivery_tag"]), received_message)
        )

    @override
    def receive(self, timeout_seconds: float, max_messages: int) -> list[ReceivedMessage]:
        """Return the messages that have arrived; `submissions.prefetch` is the only bound."""
        del max_messages
        with self._translate_errors():
            if not self._received:
                with suppress(TimeoutError):
                    self._connection.drain_events(timeout=max(0.001, timeout_seconds))
            now = time.monotonic()
            if now - self._heartbeat_at > _HEARTBEAT_CHECK_SECONDS:
                self._connection.heartbeat_check()
                self._heartbeat_at = now
        received_messages = list(self._received)
        self._received.clear()
        return received_messages

    @override
    def count_ready(self) -> int:
        with self._translate_errors():
            return int(self._control_channel.queue_declare(QUEUE, passive=True).message_count)

    @override
    def acknowledge(self, received: ReceivedMessage) -> None:
        with self._translate_errors():
            self._consume_channel.basic_ack(int(received.delivery_tag))


def _find_problem(properties: Mapping[str, Any]) -> str:
    """Return why a message with these properties cannot be an event, "" if
    that depends on its body."""
    headers = properties.get("application_headers") or {}
    if UNREADABLE_HEADER in headers:
        return str(headers[UNREADABLE_HEADER])[:_MAX_REASON_CHARACTERS]
    kind, encoding = (
        str(properties.get(name) or "") for name in ("content_type", "content_encoding")
    )
    if kind.partition(";")[0].strip().lower() not in _CONTENT_TYPES:
        return f"content type {kind[:_MAX_SHOWN_CHARACTERS]!r}: send {CONTENT_TYPE}"
    if encoding.lower() not in _ENCODINGS:
        return f"content encoding {encoding[:_MAX_SHOWN_CHARACTERS]!r}: send UTF-8, not encoded"
    return ""
