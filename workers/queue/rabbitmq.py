"""Submissions on RabbitMQ: a quorum queue, manual acknowledgement, confirmed replies."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from amqp.exceptions import AMQPError, MessageNacked
from kombu.connection import Connection
from kombu.exceptions import KombuError

from config.errors import MisconfiguredError, SkillbusError, TransientError
from skills.events import Event
from workers.queue.broker import Broker
from workers.queue.protocol import CONTENT_TYPE, QUEUE, Message, ReceivedMessage

_ACCESS_REFUSED = 403
_HEARTBEAT_SECONDS = 30
_HEARTBEAT_CHECK_SECONDS = 1.0
_CONTENT_TYPES = (CONTENT_TYPE, "application/json", "text/plain", "application/octet-stream", "")
"""The last ones are what clients write that were told nothing."""
_ENCODINGS = ("utf-8", "utf8", "us-ascii", "binary", "identity", "")
_MAX_SHOWN = 80
_NO_DELIVERY_LIMIT_FROM = 4
"""The major version since which RabbitMQ drops what was delivered 20 times, unless told not to."""
_REGISTRATION_SECONDS = 1.0
"""Before that version, RabbitMQ writes down after half a second where a new quorum queue is kept,
and does not find it again when it is killed before: https://github.com/rabbitmq/ra/pull/443."""


class RabbitReplyPublisher:
    """Sends replies to queues that their readers have made.

    Each is published as mandatory and confirmed, and expires. Without a heartbeat, for it may be
    idle for long: a connection that died is noticed at the next reply, which is then sent again.
    """

    heartbeat = 0

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._returned = False
        options = {"confirm_publish": True, "read_timeout": broker.timeout_seconds}
        self._connection: Any = Connection(
            broker.url,
            heartbeat=self.heartbeat,
            connect_timeout=broker.timeout_seconds,
            transport_options=options,
        )
        with self._translate_errors():
            self._connection.connect()
            self._publish_channel = self._connection.channel()
            self._publish_channel.events["basic_return"].add(self._on_return)

    def _on_return(self, *_: object) -> None:
        self._returned = True

    def send(self, reply_to: str, reply: Event) -> bool:
        """Publish a reply and wait until it is confirmed; False when there is no such queue, or
        it rejects the reply, as one does that is full: its reader holds up nobody else."""
        message = self._publish_channel.prepare_message(
            reply.model_dump_json().encode(),
            content_type=CONTENT_TYPE,
            content_encoding="utf-8",
            properties={
                "delivery_mode": 2,
                "message_id": reply.id,
                "correlation_id": reply.correlationid,
                "expiration": str(int(self._broker.settings.reply_seconds * 1000)),
            },
        )
        self._returned = False
        with self._translate_errors():
            try:
                self._publish_channel.basic_publish(
                    message,
                    exchange="",
                    routing_key=reply_to,
                    mandatory=True,
                    timeout=self._broker.timeout_seconds,
                )
            except MessageNacked:
                return False
        return not self._returned

    def close(self) -> None:
        """Release the connection; RabbitMQ hands out again what was not confirmed."""
        with suppress(OSError, KombuError, AMQPError):
            self._connection.release()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        where = f"RabbitMQ at {self._broker.address}"
        try:
            yield
        except AMQPError as error:
            if getattr(error, "code", None) == _ACCESS_REFUSED:
                raise MisconfiguredError(
                    f"{where} refuses the login or the queue ({error}): check the user, the "
                    f"virtual host and {self._broker.password_setting}"
                ) from None
            raise TransientError(f"{where} does not answer as expected: {error}") from error
        except TimeoutError as error:
            raise TransientError(
                f"{where} does not answer in {self._broker.timeout_seconds:g} s"
            ) from error
        except (OSError, KombuError) as error:
            raise TransientError(f"{where} does not answer: {error}") from error


class RabbitMessageConsumer(RabbitReplyPublisher):
    """Receives from `skillbus.events`, which it makes where it is missing."""

    heartbeat = _HEARTBEAT_SECONDS

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._received: deque[ReceivedMessage] = deque()
        self._heartbeat_at = time.monotonic()
        try:
            with self._translate_errors():
                self._declare()
                self._control_channel = self._connection.channel()
                self._consume_channel = self._connection.channel()
                # Some encodings that a message may name take hours to decode.
                self._consume_channel.auto_decode = False
                self._consume_channel.basic_qos(0, broker.settings.prefetch, False)
                self._consume_channel.basic_consume(QUEUE, callback=self._on_message)
        except SkillbusError:
            self.close()
            raise

    def _declare(self) -> None:
        """Make the queue, or take it as somebody else has made it."""
        asking = self._connection.channel()
        with suppress(*self._connection.channel_errors):
            asking.queue_declare(QUEUE, passive=True)
            asking.close()
            return
        version = str(self._connection.connection.server_properties.get("version", "0"))
        is_old = int(version.partition(".")[0]) < _NO_DELIVERY_LIMIT_FROM
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

    def receive(self, seconds: float, max_messages: int) -> list[ReceivedMessage]:
        """Messages that have arrived; RabbitMQ sends no more than `submissions.prefetch`."""
        del max_messages
        with self._translate_errors():
            if not self._received:
                with suppress(TimeoutError):
                    self._connection.drain_events(timeout=max(0.001, seconds))
            now = time.monotonic()
            if now - self._heartbeat_at > _HEARTBEAT_CHECK_SECONDS:
                self._connection.heartbeat_check()
                self._heartbeat_at = now
        received_message = list(self._received)
        self._received.clear()
        return received_message

    def count_ready(self) -> int:
        """Messages that nobody has taken yet."""
        with self._translate_errors():
            return int(self._control_channel.queue_declare(QUEUE, passive=True).message_count)

    def acknowledge(self, received: ReceivedMessage) -> None:
        """Acknowledge a message."""
        with self._translate_errors():
            self._consume_channel.basic_ack(int(received.delivery_tag))


def _find_problem(properties: Mapping[str, Any]) -> str:
    """Why a message of this form can be no event, "" where its body has to tell."""
    kind, encoding = (
        str(properties.get(name) or "") for name in ("content_type", "content_encoding")
    )
    if kind.partition(";")[0].strip().lower() not in _CONTENT_TYPES:
        return f"content type {kind[:_MAX_SHOWN]!r}: send {CONTENT_TYPE}"
    if encoding.lower() not in _ENCODINGS:
        return f"content encoding {encoding[:_MAX_SHOWN]!r}: send UTF-8, as it is"
    return ""
