"""What carries submissions and replies, whichever the broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from skills.events import Event

QUEUE = "skillbus.events"
"""The queue of RabbitMQ, and the stream of Redis, that submissions are written to."""

CONTENT_TYPE = "application/cloudevents+json"


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it came.

    body: to be a CloudEvents JSON object. reply_to, correlation_id: given beside it, "" for none;
    they are worth as much as the extension attributes of the event. problem: why this can be no
    submission, "" where the body has to tell.
    """

    body: bytes
    reply_to: str = ""
    correlation_id: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message and the broker's mark of it, by which it is confirmed."""

    delivery_tag: str
    message: Message


class ReplyPublisher(Protocol):
    """Sends replies. Every call raises TransientError while the broker is away."""

    def send(self, reply_to: str, reply: Event) -> bool:
        """Send a reply, kept by the broker when this returns; False when there is no such queue,
        it is none for replies, or it takes no more."""
        ...

    def close(self) -> None:
        """Release the connection."""
        ...


class MessageConsumer(ReplyPublisher, Protocol):
    """Hands out messages that stay the broker's until they are confirmed, and sends replies."""

    def receive(self, timeout_seconds: float, max_messages: int) -> list[ReceivedMessage]:
        """New messages, at most `room`, waiting at most `seconds` for the first.

        Called often, it also tells the broker that those handed out before are still held.
        """
        ...

    def count_ready(self) -> int:
        """Messages that no consumer has in hand."""
        ...

    def acknowledge(self, received: ReceivedMessage) -> None:
        """A message is recorded: the broker forgets it."""
        ...

    def close(self) -> None:
        """Release the connection; what was not confirmed is handed out again, to anybody."""
        ...
