"""Submissions on Redis: a stream with a consumer group.

An entry is deleted when it is acknowledged, so the stream holds exactly the waiting messages. It is
never trimmed by length, which would drop unread messages.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from redis.exceptions import ResponseError
from typing_extensions import override

from config.errors import SkillbusError
from workers.queue.broker import Broker
from workers.queue.protocol import QUEUE, Message, MessageConsumer, ReceivedMessage
from workers.queue.redis_reply_publisher import RedisReplyPublisher

GROUP = "skillbus"

_SWEEP_SECONDS = 60.0
_FORGET_AFTER_SECONDS = 600.0
"""Idle time after which the name of a consumer without messages is deleted from the group."""

_FORGET_SCRIPT = """
local pending = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2])
if #pending == 0 then redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2]) end
"""
"""Lua script, and so atomic: deleting a consumer would delete its pending messages too."""


class RedisMessageConsumer(RedisReplyPublisher, MessageConsumer):
    """Consumes the stream `skillbus.events` as a consumer of the group `skillbus`.

    Messages that a consumer received and did not acknowledge are claimed by another consumer once
    they are idle for `submissions.claim_seconds`. A live consumer resets the idle time of the
    messages it holds.
    """

    def __init__(self, broker: Broker, consumer: str) -> None:
        super().__init__(broker)
        self._consumer = consumer
        self._claim_idle_ms = int(broker.settings.claim_seconds * 1000)
        self._held: set[str] = set()
        self._cursor = "0-0"
        self._claim_at = 0.0
        self._sweep_at = time.monotonic() + _SWEEP_SECONDS
        self._forget = self._client.register_script(_FORGET_SCRIPT)
        self._execute(_create_group)

    @override
    def receive(self, timeout_seconds: float, max_messages: int) -> list[ReceivedMessage]:
        """Return messages claimed from dead consumers, or else new messages."""
        now = time.monotonic()
        found: list[Any] = []
        if now >= self._claim_at:
            self._claim_at = now + self._claim_idle_ms / 3000  # a third of the claim time
            self._refresh_claims()
            if max_messages > 0:
                found = self._execute(lambda client: self._claim(client, max_messages))
        if now >= self._sweep_at:
            self._sweep_at = now + _SWEEP_SECONDS
            self._execute(self._delete_idle_consumers)
        if not found and max_messages > 0:
            found = self._execute(lambda client: self._read(client, timeout_seconds, max_messages))
        elif not found:
            time.sleep(timeout_seconds)
        messages = [
            ReceivedMessage(delivery_tag, _parse_entry(fields))
            for entry, fields in found
            if (delivery_tag := entry.decode()) not in self._held
        ]
        self._held.update(received.delivery_tag for received in messages)
        return messages

    def _read(self, client: Any, timeout_seconds: float, max_messages: int) -> list[Any]:
        block_ms = max(1, int(min(timeout_seconds, self._broker.timeout_seconds / 2) * 1000))
        try:
            found = client.xreadgroup(
                GROUP, self._consumer, {QUEUE: ">"}, count=max_messages, block=block_ms
            )
        except ResponseError as error:
            if not str(error).startswith("NOGROUP"):
                raise
            _create_group(client)  # the stream was deleted while in use
            return []
        streams = found.values() if isinstance(found, Mapping) else [one[1] for one in found or ()]
        return [entry for stream in streams for entry in _flatten_entries(stream)]

    def _claim(self, client: Any, max_messages: int) -> list[Any]:
        found = client.xautoclaim(
            QUEUE,
            GROUP,
            self._consumer,
            self._claim_idle_ms,
            start_id=self._cursor,
            count=max_messages,
        )
        self._cursor = found[0].decode() if isinstance(found[0], bytes) else str(found[0])
        # An entry that was deleted by hand has no fields; Redis removes it from the pending list.
        return [(entry, fields) for entry, fields in found[1] if fields is not None]

    def _refresh_claims(self, idle_ms: int = 0) -> None:
        """Set the idle time of the messages that this consumer holds."""
        if self._held:
            held = sorted(self._held)
            self._execute(
                lambda client: client.xclaim(
                    QUEUE, GROUP, self._consumer, 0, held, idle=idle_ms, justid=True
                )
            )

    def _delete_idle_consumers(self, client: Any) -> None:
        """Delete the names of consumers that are long idle and hold nothing."""
        min_idle_ms = max(_FORGET_AFTER_SECONDS * 1000, 2 * self._claim_idle_ms)
        for one in client.xinfo_consumers(QUEUE, GROUP):
            if not one["pending"] and one["idle"] > min_idle_ms:
                self._forget(keys=[QUEUE], args=[GROUP, one["name"]])

    @override
    def count_ready(self) -> int:
        length = int(self._execute(lambda client: client.xlen(QUEUE)))
        pending = self._execute(lambda client: client.xpending(QUEUE, GROUP))["pending"]
        return max(0, length - int(pending))

    @override
    def acknowledge(self, received: ReceivedMessage) -> None:
        def delete(client: Any) -> None:
            with client.pipeline(transaction=True) as pipeline:
                pipeline.xack(QUEUE, GROUP, received.delivery_tag)
                pipeline.xdel(QUEUE, received.delivery_tag)
                pipeline.execute()

        self._execute(delete)
        self._held.discard(received.delivery_tag)

    @override
    def close(self) -> None:
        """Release the connection.

        Other consumers can claim held messages at once; without any, the
        consumer's name is deleted.
        """
        with suppress(SkillbusError):
            self._refresh_claims(idle_ms=self._claim_idle_ms + 1)
            self._execute(lambda _: self._forget(keys=[QUEUE], args=[GROUP, self._consumer]))
        super().close()


def _create_group(client: Any) -> None:
    try:
        client.xgroup_create(QUEUE, GROUP, id="0", mkstream=True)
    except ResponseError as error:
        if not str(error).startswith("BUSYGROUP"):
            raise


def _flatten_entries(entries: Any) -> list[Any]:
    """Return the entries of a stream; RESP3 nests them in one more list."""
    if entries and isinstance(entries[0], list):
        return [entry for part in entries for entry in part]
    return list(entries)


def _parse_entry(fields: Mapping[bytes, bytes]) -> Message:
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
