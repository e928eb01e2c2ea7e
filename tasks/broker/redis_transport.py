"""Kombu transport for Redis that survives unreadable messages, failed acks and skewed clocks.

Kombu decodes an item after removing it from the queue: an item that is not a message ends the
worker and is lost. This transport wraps such an item in a message with the header `unreadable`, and
the consumer moves it to the dead letters.

Kombu also keeps counting a message whose acknowledgement failed against the prefetch limit, so that
a worker with a limit of one would stop consuming; this transport does not count it. Kombu
redelivers by the clock of the worker; this transport uses the clock of Redis.
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

from tasks.message import UNREADABLE_HEADER

_ROUTE = ("exchange", "routing_key")
_CONTENT = ("content-type", "content-encoding")
_DECODE_ERRORS = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    RecursionError,
)
"""Raised by kombu for invalid JSON, and for invalid typed values in JSON."""


class _Client(Redis):
    """A Redis client that wraps items that are not messages when it takes them from a queue."""

    def parse_response(self, connection: Any, command_name: str, **options: Any) -> Any:
        """Return the response to a command; BRPOP takes an item from a queue."""
        answer: Any = super().parse_response(connection, command_name, **options)
        if command_name != "BRPOP" or not answer:
            return answer
        key, item = answer
        try:
            reason = _find_defect(loads(item))
        except _DECODE_ERRORS as error:
            reason = f"not JSON: {error}"
        return key, _wrap_unreadable(key, item, reason) if reason else item


class QoS(kombu_redis.QoS):
    """Kombu's record of messages that were taken and not acknowledged yet."""

    def append(self, message: Any, delivery_tag: str) -> None:
        """Record a message that was taken, with the time of Redis."""
        route = (message.delivery_info[name] for name in _ROUTE)
        kept = dumps([message._raw, *route])
        with self.channel.conn_or_acquire() as client, client.pipeline() as pipeline:
            pipeline.zadd(self.unacked_index_key, {delivery_tag: client.time()[0]})
            pipeline.hset(self.unacked_key, delivery_tag, kept)
            pipeline.execute()
        super(kombu_redis.QoS, self).append(message, delivery_tag)

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a message. If Redis is away, the message is delivered again later, and its
        task finds the work done."""
        try:
            super().ack(delivery_tag)
        finally:
            self._quick_ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Drop a message, or return it to its queue for immediate delivery."""
        try:
            super().reject(delivery_tag, requeue)
        finally:
            self._quick_ack(delivery_tag)

    @property
    def visibility_timeout(self) -> float:
        """Age in seconds, by the clock of this machine, at which a message is delivered again."""
        with self.channel.conn_or_acquire() as client:
            seconds, micros = client.time()
        ahead = time.time() - (seconds + micros / 1e6)
        return float(self.channel.visibility_timeout + ahead)


class Channel(kombu_redis.Channel):
    """Kombu's channel with `_Client` and `QoS`."""

    QoS = QoS

    def _get_client(self) -> type[Redis]:
        return _Client


class Transport(kombu_redis.Transport):
    """Kombu's transport with `Channel`; named in `BrokerConfig.transport_class`."""

    Channel = Channel


def _find_defect(message: Any) -> str:
    """Return why kombu could not deliver this item; "" if it can."""
    if not isinstance(message, dict):
        return "not a JSON object"
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
