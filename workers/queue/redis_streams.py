"""Submissions on Redis: a stream with a consumer group, and replies on streams that expire.

An entry is deleted with its acknowledgement, so the stream holds what waits and nothing else; it is
never cut by length, which would drop what nobody has read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from redis import Redis
from redis.exceptions import ResponseError

from config.errors import PermanentError, SkillbusError
from skills.events import Event
from tasks.broker.redis_connection import translate_errors_at
from workers.queue.broker import Broker
from workers.queue.protocol import QUEUE, Message, ReceivedMessage

GROUP = "skillbus"

_SWEEP_SECONDS = 60.0
_FORGET_AFTER_SECONDS = 600.0
"""How long a consumer without messages was not heard of until its name is forgotten."""

_FORGET_SCRIPT = """
local pending = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2])
if #pending == 0 then redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2]) end
"""
"""In one step: a consumer that goes takes along what it holds."""


class RedisReplyPublisher:
    """Sends replies to streams, each bounded in length and expiring after its last reply."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._client: Any = Redis.from_url(
            broker.url,
            socket_timeout=broker.timeout_seconds,
            socket_connect_timeout=broker.timeout_seconds,
            socket_keepalive=True,
            health_check_interval=30,
            client_name="skillbus-submissions",
        )

    def _execute(self, work: Callable[[Any], Any]) -> Any:
        with translate_errors_at(self._broker.address, self._broker.password_setting):
            return work(self._client)

    def send(self, reply_to: str, reply: Event) -> bool:
        """Add a reply; False when the key is no stream."""
        fields = {"event": reply.model_dump_json(), "correlation_id": reply.correlationid}
        settings = self._broker.settings

        def add(client: Any) -> None:
            with client.pipeline(transaction=True) as pipeline:
                pipeline.xadd(reply_to, fields, maxlen=settings.replies, approximate=True)
                pipeline.pexpire(reply_to, int(settings.reply_seconds * 1000))
                pipeline.execute()

        try:
            self._execute(add)
        except PermanentError as error:
            if "WRONGTYPE" in str(error):
                return False
            raise
        return True

    def close(self) -> None:
        """Release the connection."""
        self._client.close()


class RedisMessageConsumer(RedisReplyPublisher):
    """Receives from `skillbus.events` as a consumer of the group `skillbus`.

    What a consumer was given and did not acknowledge is claimed by another once it has been silent
    for `submissions.claim_seconds`. While messages are held, their idle time is kept low.
    """

    def __init__(self, broker: Broker, consumer: str) -> None:
        super().__init__(broker)
        self._consumer = consumer
        self._idle = int(broker.settings.claim_seconds * 1000)
        self._held: set[str] = set()
        self._cursor = "0-0"
        self._claim_at = 0.0
        self._sweep_at = time.monotonic() + _SWEEP_SECONDS
        self._forget = self._client.register_script(_FORGET_SCRIPT)
        self._execute(_make_group)

    def receive(self, seconds: float, max_messages: int) -> list[ReceivedMessage]:
        """Entries of consumers that died, else new ones."""
        now = time.monotonic()
        found: list[Any] = []
        if now >= self._claim_at:
            self._claim_at = now + self._idle / 3000
            self._refresh_claims()
            if max_messages > 0:
                found = self._execute(lambda client: self._claim(client, max_messages))
        if now >= self._sweep_at:
            self._sweep_at = now + _SWEEP_SECONDS
            self._execute(self._sweep)
        if not found and max_messages > 0:
            found = self._execute(lambda client: self._read(client, seconds, max_messages))
        elif not found:
            time.sleep(seconds)
        messages = [
            ReceivedMessage(delivery_tag, _message(fields))
            for entry, fields in found
            if (delivery_tag := entry.decode()) not in self._held
        ]
        self._held.update(received.delivery_tag for received in messages)
        return messages

    def _read(self, client: Any, seconds: float, max_messages: int) -> list[Any]:
        patience = max(1, int(min(seconds, self._broker.timeout_seconds / 2) * 1000))
        try:
            found = client.xreadgroup(
                GROUP, self._consumer, {QUEUE: ">"}, count=max_messages, block=patience
            )
        except ResponseError as error:
            if not str(error).startswith("NOGROUP"):
                raise
            _make_group(client)  # the stream was deleted under us
            return []
        streams = found.values() if isinstance(found, Mapping) else [one[1] for one in found or ()]
        return [entry for stream in streams for entry in _flat(stream)]

    def _claim(self, client: Any, max_messages: int) -> list[Any]:
        found = client.xautoclaim(
            QUEUE, GROUP, self._consumer, self._idle, start_id=self._cursor, count=max_messages
        )
        self._cursor = found[0].decode() if isinstance(found[0], bytes) else str(found[0])
        # A message that was deleted by hand has no fields; Redis takes it off the list itself.
        return [(entry, fields) for entry, fields in found[1] if fields is not None]

    def _refresh_claims(self, idle: int = 0) -> None:
        """Set how long the messages in hand count as idle."""
        if self._held:
            held = sorted(self._held)
            self._execute(
                lambda client: client.xclaim(
                    QUEUE, GROUP, self._consumer, 0, held, idle=idle, justid=True
                )
            )

    def _sweep(self, client: Any) -> None:
        """Forget names of consumers that are long gone and hold nothing."""
        for one in client.xinfo_consumers(QUEUE, GROUP):
            if not one["pending"] and one["idle"] > max(
                _FORGET_AFTER_SECONDS * 1000, 2 * self._idle
            ):
                self._forget(keys=[QUEUE], args=[GROUP, one["name"]])

    def count_ready(self) -> int:
        """Entries of the stream: confirmed ones are gone, and those in hand are here or with
        another consumer."""
        length = int(self._execute(lambda client: client.xlen(QUEUE)))
        pending = self._execute(lambda client: client.xpending(QUEUE, GROUP))["pending"]
        return max(0, length - int(pending))

    def acknowledge(self, received: ReceivedMessage) -> None:
        """Acknowledge an entry and delete it."""

        def drop(client: Any) -> None:
            with client.pipeline(transaction=True) as pipeline:
                pipeline.xack(QUEUE, GROUP, received.delivery_tag)
                pipeline.xdel(QUEUE, received.delivery_tag)
                pipeline.execute()

        self._execute(drop)
        self._held.discard(received.delivery_tag)

    def close(self) -> None:
        """Leave what is held to others at once, and be forgotten where that is nothing."""

        with suppress(SkillbusError):
            self._refresh_claims(idle=self._idle + 1)
            self._execute(lambda _: self._forget(keys=[QUEUE], args=[GROUP, self._consumer]))
        super().close()


def _make_group(client: Any) -> None:
    try:
        client.xgroup_create(QUEUE, GROUP, id="0", mkstream=True)
    except ResponseError as error:
        if not str(error).startswith("BUSYGROUP"):
            raise


def _flat(entries: Any) -> list[Any]:
    """Entries of a stream; RESP3 has them in one more list."""
    if entries and isinstance(entries[0], list):
        return [entry for part in entries for entry in part]
    return list(entries)


def _message(fields: Mapping[bytes, bytes]) -> Message:
    body = fields.get(b"event")
    reply_to, correlation_id = (
        fields.get(name, b"").decode("utf-8", "replace")
        for name in (b"reply_to", b"correlation_id")
    )
    if body is None:
        shown = {
            name.decode("utf-8", "replace"): value.decode("utf-8", "replace")
            for name, value in fields.items()
        }
        text = json.dumps(shown, ensure_ascii=False).encode()
        return Message(text, reply_to, correlation_id, "the entry has no field 'event'")
    return Message(body, reply_to, correlation_id)
