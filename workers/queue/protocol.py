"""Protocols of a broker's consumer and reply publisher, and the messages between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from skills.events import Event

QUEUE = "skillbus.events"
"""Name of the RabbitMQ queue, or Redis stream, that submissions are written to."""

CONTENT_TYPE = "application/cloudevents+json"


@dataclass(frozen=True, slots=True)
class Message:
    """A message as received.

    body: expected to be a CloudEvents JSON object. reply_to, correlation_id: message properties, ""
    if unset; equivalent to the event's extension attributes. problem: why the message cannot be a
    submission, regardless of its body; "" if that depends on the body.
    """

    body: bytes
    reply_to: str = ""
    correlation_id: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message and the broker's tag for it, which acknowledges it."""

    delivery_tag: str
    message: Message


class ReplyPublisher(Protocol):
    """Publishes replies. Every call raises TransientError while the broker is unreachable."""

    def send(self, reply_to: str, reply: Event) -> bool:
        """Publish a reply to the queue or stream `reply_to`.

        Returns True once the broker has stored it; False if the queue does not exist, cannot hold
        replies, or is full.
        """
        ...

    def close(self) -> None:
        """Release the connection."""
        ...


class MessageConsumer(ReplyPublisher, Protocol):
    """Receives messages, which the broker keeps until they are acknowledged; publishes replies."""

    def receive(self, timeout_seconds: float, max_messages: int) -> list[ReceivedMessage]:
        """Return new messages, waiting at most `timeout_seconds` for the first.

        Frequent calls also keep the connection and the claims on unacknowledged messages alive.
        """
        ...

    def count_ready(self) -> int:
        """Count the messages that no consumer has received."""
        ...

    def acknowledge(self, received: ReceivedMessage) -> None:
        """Have the broker delete a message that is recorded."""
        ...

    def close(self) -> None:
        """Release the connection; unacknowledged messages are delivered again, to any consumer."""
        ...
