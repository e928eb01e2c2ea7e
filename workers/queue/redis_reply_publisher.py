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

    def _execute(self, work: Callable[[Any], Any]) -> Any:
        with translate_errors_at(self._broker.address, self._broker.password_setting):
            return work(self._client)

    @override
    def send(self, reply_to: str, reply: Event) -> bool:
        """Add a reply to a stream; False if the key `reply_to` is of another type."""
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

    @override
    def close(self) -> None:
        self._client.close()
