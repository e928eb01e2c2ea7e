"""Programs outside of skillbus: they write submissions to a real broker and read replies there."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import pika
from redis import Redis

from config.secrets import with_password
from tests.support.servers import RunServers

STREAM = "skillbus.events"
_DATABASE = 11


@dataclass(frozen=True)
class Reply:
    """A reply as its reader sees it."""

    event: dict[str, Any]
    correlation_id: str

    @property
    def type(self) -> str:
        """The event's type."""
        return str(self.event["type"])

    @property
    def data(self) -> dict[str, Any]:
        """The event's data."""
        data: dict[str, Any] = self.event["data"]
        return data


class Outside(Protocol):
    """A program that knows the broker and nothing of skillbus. `settings`: of `[submissions]`."""

    name: Literal["redis", "rabbitmq"]
    settings: dict[str, Any]

    def put(self, body: str | bytes, reply_to: str = "", correlation_id: str = "") -> None:
        """Write a message."""
        ...

    def listen(self, name: str) -> None:
        """Make a queue for replies."""
        ...

    def replies(self, name: str, count: int, seconds: float = 20.0) -> list[Reply]:
        """Read so many replies, or those that came in time."""
        ...

    def left(self) -> int:
        """Messages that were not confirmed."""
        ...

    def clear(self) -> None:
        """Leave nothing behind."""
        ...

    def drop(self) -> None:
        """Have consumers make the queue anew."""
        ...


class OnRedis:
    """A program on Redis."""

    name: Literal["redis", "rabbitmq"] = "redis"

    def __init__(self, servers: RunServers) -> None:
        url = f"{servers.url('redis').rpartition('/')[0]}/{_DATABASE}"
        file = servers.password_file("redis")
        self.settings = {"broker": url, "broker_password_file": file}
        secret = file.read_text().strip() if file else None
        self.client: Any = Redis.from_url(
            with_password(url, secret), decode_responses=True, protocol=2, socket_timeout=60
        )
        self._read: dict[str, str] = {}

    def put(self, body: str | bytes, reply_to: str = "", correlation_id: str = "") -> None:
        fields: dict[str, str | bytes] = {"event": body}
        fields |= {"reply_to": reply_to} if reply_to else {}
        fields |= {"correlation_id": correlation_id} if correlation_id else {}
        self.client.xadd(STREAM, fields)

    def listen(self, name: str) -> None:
        """A stream is there once something is in it."""

    def replies(self, name: str, count: int, seconds: float = 20.0) -> list[Reply]:
        found: list[Reply] = []
        end = time.monotonic() + seconds
        while len(found) < count and (left := end - time.monotonic()) > 0:
            last = self._read.get(name, "0")
            answer = self.client.xread({name: last}, block=max(1, int(left * 1000)))
            for entry, fields in answer[0][1] if answer else ():
                self._read[name] = entry
                found.append(Reply(json.loads(fields["event"]), fields["correlation_id"]))
        return found

    def left(self) -> int:
        return int(self.client.xlen(STREAM))

    def clear(self) -> None:
        self.client.flushdb()

    def drop(self) -> None:
        self.client.delete(STREAM)


class OnRabbit:
    """A program on RabbitMQ."""

    name: Literal["redis", "rabbitmq"] = "rabbitmq"

    def __init__(self, servers: RunServers) -> None:
        url, file = servers.url("rabbitmq"), servers.password_file("rabbitmq")
        self.settings = {"broker": url, "broker_password_file": file}
        self._parameters = pika.URLParameters(
            with_password(url, file.read_text().strip() if file else "guest")
        )

    @contextmanager
    def channel(self) -> Iterator[Any]:
        connection = pika.BlockingConnection(self._parameters)
        try:
            channel = connection.channel()
            channel.confirm_delivery()
            yield channel
        finally:
            connection.close()

    def put(
        self,
        body: str | bytes,
        reply_to: str = "",
        correlation_id: str = "",
        encoding: str | None = None,
        kind: str | None = None,
    ) -> None:
        """Write a message; encoding, kind: what AMQP says of its content."""
        properties = pika.BasicProperties(
            delivery_mode=2,
            reply_to=reply_to or None,
            correlation_id=correlation_id or None,
            content_encoding=encoding,
            content_type=kind,
        )
        with self.channel() as channel:
            channel.basic_publish("", STREAM, body, properties, mandatory=True)

    def listen(self, name: str) -> None:
        with self.channel() as channel:
            channel.queue_declare(name, durable=True)

    def replies(self, name: str, count: int, seconds: float = 20.0) -> list[Reply]:
        found: list[Reply] = []
        end = time.monotonic() + seconds
        with self.channel() as channel:
            while len(found) < count and (left := end - time.monotonic()) > 0:
                for method, properties, body in channel.consume(name, inactivity_timeout=left):
                    if method is not None:
                        channel.basic_ack(method.delivery_tag)
                        found.append(Reply(json.loads(body), properties.correlation_id or ""))
                    if method is None or len(found) == count:
                        break
            channel.cancel()
        return found

    def left(self) -> int:
        """Counted by taking them: what a consumer holds is not among them."""
        with self.channel() as channel:
            return int(channel.queue_declare(STREAM, passive=True).method.message_count)

    def clear(self) -> None:
        """An empty queue, so that consumers need not make it."""
        with self.channel() as channel:
            channel.queue_delete(STREAM)
            channel.queue_declare(STREAM, durable=True, arguments={"x-queue-type": "quorum"})

    def drop(self) -> None:
        with self.channel() as channel:
            channel.queue_delete(STREAM)


def query(task: str = "true a bicycle wheel", **members: Any) -> dict[str, Any]:
    """A question as a program writes it."""
    return event("skillbus.query.asked.v1", {"task": task}, **members)


def event(kind: str, data: dict[str, Any], **members: Any) -> dict[str, Any]:
    """An event as a program writes it."""
    given = {"specversion": "1.0", "id": uuid.uuid4().hex, "source": "test/outside"}
    return {**given, "type": kind, "data": data, **members}


def reply_name(path: Path) -> str:
    """A name for replies that no other test has."""
    return f"skillbus.replies.{path.name[-40:]}-{uuid.uuid4().hex[:8]}"
