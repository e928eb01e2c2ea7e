"""Programs outside of skillbus: they write submissions to a real broker and read replies there."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pika
import pytest
from redis import Redis

from config.errors import NotFoundError
from config.inbound_settings import SubmissionSettings
from config.secrets import add_password
from config.settings import Settings
from skills.events import parse_event
from tasks.journal.protocol import Job, job_id
from tests.support.program.program import wait_for
from tests.support.samples.tiny import TinyEncoder
from tests.support.servers.servers import RunServers
from workers.backend.distributed import DistributedBackend
from workers.backend.embedded import EmbeddedBackend
from workers.backend.store_backend import StoreBackend
from workers.queue.service import SubmissionService

STREAM = "skillbus.events"
CLAIM_SECONDS = 3.0
"""After which a message that a consumer holds without a sign of life is another's to take."""
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


class OnRedis:
    """A program on Redis that knows nothing of skillbus. settings: of `[submissions]`."""

    name: Literal["redis", "rabbitmq"] = "redis"

    def __init__(self, servers: RunServers) -> None:
        url = f"{servers.url('redis').rpartition('/')[0]}/{_DATABASE}"
        file = servers.password_file("redis")
        self.settings: dict[str, Any] = {"broker": url, "broker_password_file": file}
        secret = file.read_text().strip() if file else None
        self.client: Any = Redis.from_url(
            add_password(url, secret), decode_responses=True, protocol=2, socket_timeout=60
        )
        self._read: dict[str, str] = {}

    def put(self, body: str | bytes, reply_to: str = "", correlation_id: str = "") -> None:
        """Write a message."""
        fields: dict[str, str | bytes] = {"event": body}
        fields |= {"reply_to": reply_to} if reply_to else {}
        fields |= {"correlation_id": correlation_id} if correlation_id else {}
        self.client.xadd(STREAM, fields)

    def listen(self, name: str) -> None:
        """A stream is there once something is in it."""

    def replies(self, name: str, count: int, seconds: float = 60.0) -> list[Reply]:
        """Read so many replies, or those that came in time."""
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
        """Messages that were not confirmed."""
        return int(self.client.xlen(STREAM))

    def clear(self) -> None:
        """Leave nothing behind."""
        self.client.flushdb()

    def drop(self) -> None:
        """Have consumers make the queue anew."""
        self.client.delete(STREAM)


class OnRabbit:
    """A program on RabbitMQ."""

    name: Literal["redis", "rabbitmq"] = "rabbitmq"

    def __init__(self, servers: RunServers) -> None:
        url, file = servers.url("rabbitmq"), servers.password_file("rabbitmq")
        self.settings: dict[str, Any] = {"broker": url, "broker_password_file": file}
        self._parameters = pika.URLParameters(
            add_password(url, file.read_text().strip() if file else "guest")
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
        """Make an empty queue for replies; workers of earlier tests may have left another."""
        with self.channel() as channel:
            channel.queue_delete(name)
            channel.queue_declare(name, durable=True)

    def replies(self, name: str, count: int, seconds: float = 60.0) -> list[Reply]:
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


Outside = OnRedis | OnRabbit
"""A program at either broker."""


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


BUNDLE = {
    "query_id": "q",
    "status": "NO_SKILL_HIT",
    "reason": "the library holds no skill yet",
    "task": "x",
    "budget": 100,
    "degraded": [],
    "timings_ms": {},
}
"""An answer."""


@contextmanager
def at_broker(name: str, servers: RunServers) -> Iterator[Outside]:
    """A program at this broker."""
    made: Outside = OnRedis(servers) if name == "redis" else OnRabbit(servers)
    made.clear()
    yield made
    made.clear()


@pytest.fixture(params=["redis", "rabbitmq"])
def outside(request: pytest.FixtureRequest, run_servers: RunServers) -> Iterator[Outside]:
    """A program at either broker."""
    with at_broker(request.param, run_servers) as made:
        yield made


class Home:
    """A deployment whose workers are not started: what is accepted stays open until a test ends
    it. `base`: settings of one on servers, None for an embedded one."""

    def __init__(self, outside: Outside, home: Path, base: Settings | None = None) -> None:
        self.outside = outside
        self.home = home
        self.base = base

    @contextmanager
    def __call__(self, **groups: dict[str, Any]) -> Iterator[StoreBackend]:
        """A channel to it, open; groups: settings that differ."""
        groups.setdefault("submissions", self.outside.settings)
        groups["submissions"] = {"claim_seconds": CLAIM_SECONDS} | groups["submissions"]
        channel = self._remote(groups) if self.base else self._runtime(groups)
        try:
            yield channel
        finally:
            channel.stop()

    def _runtime(self, groups: dict[str, Any]) -> StoreBackend:
        settings = Settings(**groups).model_copy(update={"home": self.home})
        return EmbeddedBackend(settings, writable=True, encoder=TinyEncoder())

    def _remote(self, groups: dict[str, Any]) -> StoreBackend:
        assert self.base is not None
        changes: dict[str, Any] = {
            name: getattr(self.base, name).model_copy(update=values)
            for name, values in groups.items()
        }
        changes["submissions"] = SubmissionSettings(**groups["submissions"])
        return DistributedBackend(self.base.model_copy(update=changes), writable=True)


@contextmanager
def consuming(channel: StoreBackend, count: int = 1) -> Iterator[list[SubmissionService]]:
    """So many consumers and relays, connected."""
    with ExitStack() as stack:
        made = [stack.enter_context(SubmissionService(channel)) for _ in range(count)]
        wait_for(lambda: all(one.consumer.connected.is_set() for one in made))
        yield made


def id_of(sent: dict[str, Any]) -> str:
    """The id of the job that an event becomes."""
    return job_id(parse_event(json.dumps(sent)))


def recorded(backend: StoreBackend, sent: dict[str, Any]) -> Job | None:
    """The job of an event, None while there is none."""
    try:
        return backend.journal.get_job(id_of(sent))
    except NotFoundError:
        return None
