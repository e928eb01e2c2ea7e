"""Redis as a broker whose lists may hold anything: what is no message is delivered as one.

Kombu takes an item from a list and only then looks whether it is a message. Where it is none, an
error ends the worker and the item is gone. Here such an item is put into an envelope, so that a
worker's consumer can look at it and bury it.

Kombu also keeps the place of a message whose acknowledgement failed: a worker that takes one at a
time would take nothing any more. And it delivers again by the clock of whoever looks. Here the
place is free, and the clock is that of Redis.
"""

from __future__ import annotations

import base64
import json
import time
import uuid
from typing import Any

from kombu.transport import redis as kombu_redis
from kombu.utils.json import dumps, loads
from redis import Redis

UNREADABLE_HEADER = "unreadable"
"""Header of what was no message: why."""

_ROUTE = ("exchange", "routing_key")
_CONTENT = ("content-type", "content-encoding")
_NOT_LOADED = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError)
"""What kombu raises for no JSON, and for the typed values that it looks for in JSON."""


class _Client(Redis):
    """A Redis client from which every taken item is a message."""

    def parse_response(self, connection: Any, command_name: str, **options: Any) -> Any:
        """The response; a taken item that is no message comes in an envelope."""
        answer: Any = super().parse_response(connection, command_name, **options)
        if command_name != "BRPOP" or not answer:
            return answer
        key, item = answer
        try:
            reason = _find_defect(loads(item))
        except _NOT_LOADED as error:
            reason = f"no JSON: {error}"
        return key, _wrap_unreadable(key, item, reason) if reason else item


class QoS(kombu_redis.QoS):
    """Kombu's record of what was taken and not acknowledged yet."""

    def append(self, message: Any, delivery_tag: str) -> None:
        """Note a message that was taken."""
        route = (message.delivery_info[name] for name in _ROUTE)
        kept = dumps([message._raw, *route])
        with self.channel.conn_or_acquire() as client, client.pipeline() as pipeline:
            pipeline.zadd(self.unacked_index_key, {delivery_tag: client.time()[0]})
            pipeline.hset(self.unacked_key, delivery_tag, kept)
            pipeline.execute()
        super(kombu_redis.QoS, self).append(message, delivery_tag)

    def ack(self, delivery_tag: str) -> None:
        """Forget it. Where Redis is away it comes again one day, and its work is found done."""
        try:
            super().ack(delivery_tag)
        finally:
            self._quick_ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Forget it, or have it delivered again at once."""
        try:
            super().reject(delivery_tag, requeue)
        finally:
            self._quick_ack(delivery_tag)

    @property
    def visibility_timeout(self) -> float:
        """Seconds before now, by the clock of this machine, when what comes again was noted."""
        with self.channel.conn_or_acquire() as client:
            seconds, micros = client.time()
        ahead = time.time() - (seconds + micros / 1e6)
        return float(self.channel.visibility_timeout + ahead)


class Channel(kombu_redis.Channel):
    """Kombu's channel with our client and our record."""

    QoS = QoS

    def _get_client(self) -> type[Redis]:
        return _Client


class Transport(kombu_redis.Transport):
    """Kombu's transport with our channel."""

    Channel = Channel


def _find_defect(message: Any) -> str:
    """Why something cannot be delivered as it is; "" when it can."""
    if not isinstance(message, dict):
        return "no JSON object"
    body, headers = message.get("body"), message.get("headers")
    properties = message.get("properties")
    given = properties if isinstance(properties, dict) else {}
    place = given.get("delivery_info")
    route = place if isinstance(place, dict) else {}
    named = (given.get("delivery_tag"), route.get("exchange"), route.get("routing_key"))
    if not isinstance(body, str) or not isinstance(headers, dict | None):
        return "no body or headers as kombu writes them"
    if not all(isinstance(message.get(name), str | None) for name in _CONTENT):
        return "no kind of content as kombu writes it"
    if not all(isinstance(value, str) for value in named):
        return "no properties as kombu writes them"
    if headers and "compression" in headers:
        return "compressed"
    if given.get("body_encoding") is None:
        return ""
    return "" if _is_base64(given["body_encoding"], body) else "a body that is not in base64"


def _is_base64(encoding: Any, body: str) -> bool:
    try:
        base64.b64decode(body)
    except ValueError:
        return False
    return bool(encoding == "base64")


def _wrap_unreadable(key: bytes, item: bytes, reason: str) -> bytes:
    queue = key.decode().partition(kombu_redis.Channel.sep)[0]
    message = {
        "body": base64.b64encode(item).decode(),
        "content-type": "application/octet-stream",
        "content-encoding": "binary",
        "headers": {UNREADABLE_HEADER: reason},
        "properties": {
            "body_encoding": "base64",
            "delivery_tag": str(uuid.uuid4()),
            "delivery_info": {"exchange": "", "routing_key": queue},
        },
    }
    return json.dumps(message).encode()
