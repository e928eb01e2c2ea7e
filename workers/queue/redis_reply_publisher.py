"""Replies on Redis: streams of bounded length that expire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redis import Redis
from typing_extensions import override

from config.errors import PermanentError
from skills.events import Event
from tasks.broker.redis_connection import translate_errors_at
from workers.queue.broker import Broker
from workers.queue.protocol import ReplyPublisher

_ADD_REPLY = """
redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*',
    'event', ARGV[3], 'correlation_id', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
"""
"""Lua script, which ends at an error: a transaction would have a key of another type expire."""


class RedisReplyPublisher(ReplyPublisher):
    """Publishes replies to streams.

    A stream keeps the last `submissions.replies` replies and expires `submissions.reply_seconds`
    after the last one.
    """

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
        self._add_reply = self._client.register_script(_ADD_REPLY)

    def _execute(self, work: Callable[[Any], Any]) -> Any:
        with translate_errors_at(self._broker.address, self._broker.password_setting):
            return work(self._client)

    @override
    def send(self, reply_to: str, reply: Event) -> bool:
        """Add a reply to a stream; False if the key `reply_to` is of another type."""
        settings = self._broker.settings
        milliseconds = int(settings.reply_seconds * 1000)
        arguments: list[str | int] = [settings.replies, milliseconds]
        arguments += [reply.model_dump_json(), reply.correlationid]
        try:
            self._execute(lambda _: self._add_reply(keys=[reply_to], args=arguments))
        except PermanentError as error:
            if "WRONGTYPE" in str(error):
                return False
            raise
        return True

    @override
    def close(self) -> None:
        self._client.close()
