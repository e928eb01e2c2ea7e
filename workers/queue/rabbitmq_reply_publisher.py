"""Replies on RabbitMQ: published to the queues of their readers, mandatory and confirmed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from amqp.exceptions import AMQPError, MessageNacked
from kombu.connection import Connection
from kombu.exceptions import KombuError
from typing_extensions import override

from config.errors import MisconfiguredError, TransientError
from skills.events import Event
from workers.queue.broker import Broker
from workers.queue.protocol import CONTENT_TYPE, ReplyPublisher

_ACCESS_REFUSED = 403


class RabbitReplyPublisher(ReplyPublisher):
    """Publishes replies to existing queues; each reply expires after `submissions.reply_seconds`.

    The connection has no heartbeat, since it may be idle for long: a dead connection is noticed at
    the next reply, which is then sent again.
    """

    heartbeat_seconds = 0

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._returned = False
        options = {"confirm_publish": True, "read_timeout": broker.timeout_seconds}
        self._connection: Any = Connection(
            broker.url,
            heartbeat=self.heartbeat_seconds,
            connect_timeout=broker.timeout_seconds,
            transport_options=options,
        )
        with self._translate_errors():
            self._connection.connect()
            self._publish_channel = self._connection.channel()
            self._publish_channel.events["basic_return"].add(self._on_return)

    def _on_return(self, *_: object) -> None:
        self._returned = True

    @override
    def send(self, reply_to: str, reply: Event) -> bool:
        """Publish a reply and wait for the broker's confirmation.

        A full queue rejects the reply: False is returned, and other readers are not delayed.
        """
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

    @override
    def close(self) -> None:
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
