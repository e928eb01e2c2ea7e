"""The broker of submissions: which one the settings name, and the way to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from config.errors import UsageError
from config.inbound_settings import SubmissionSettings
from config.secrets import add_password, read_secret, strip_password
from config.settings import Settings
from workers.queue.protocol import MessageConsumer, ReplyPublisher

_REDIS, _RABBITMQ = ("redis", "rediss"), ("amqp", "amqps")


@dataclass(frozen=True, slots=True)
class Broker:
    """Where submissions come from.

    url: with the password, never shown. address: as it may be shown. password_setting: the
    setting that names the password's file. timeout_seconds: of one call.
    """

    url: str = field(repr=False)
    address: str
    password_setting: str
    timeout_seconds: float
    settings: SubmissionSettings

    @property
    def is_redis(self) -> bool:
        """Redis, else RabbitMQ."""
        return urlsplit(self.url).scheme in _REDIS


def get_submission_broker(settings: Settings) -> Broker:
    """The broker that the settings name for submissions, on servers at least that of the tasks.

    Raises UsageError when there is none or its address is none, SetupError for a password file
    that cannot be read.
    """
    own, servers = settings.submissions, settings.servers
    if own.broker:
        name, url, file = "submissions.broker", own.broker, own.broker_password_file
    else:
        name, url, file = "servers.broker", servers.broker, servers.broker_password_file
    if not url:
        raise UsageError(
            "submissions.broker names no broker: write redis://host:port/db or "
            "amqp://user@host:port/vhost"
        )
    if urlsplit(url).scheme not in (*_REDIS, *_RABBITMQ):
        raise UsageError(
            f"{name}: {strip_password(url)}: write redis://host:port/db or "
            "amqp://user@host:port/vhost"
        )
    secret = f"{name}_password_file"
    found = add_password(url, read_secret(file, secret))
    return Broker(found, strip_password(url), secret, servers.timeout_seconds, own)


def open_message_consumer(broker: Broker, consumer: str) -> MessageConsumer:
    """A connection that receives, under the name of a consumer; raises TransientError while the
    broker is away, SetupError when it refuses the login."""
    if broker.is_redis:
        from workers.queue.redis_streams import RedisMessageConsumer

        return RedisMessageConsumer(broker, consumer)
    from workers.queue.rabbitmq import RabbitMessageConsumer

    return RabbitMessageConsumer(broker)


def open_reply_publisher(broker: Broker) -> ReplyPublisher:
    """A connection that only sends replies."""
    if broker.is_redis:
        from workers.queue.redis_streams import RedisReplyPublisher

        return RedisReplyPublisher(broker)
    from workers.queue.rabbitmq import RabbitReplyPublisher

    return RabbitReplyPublisher(broker)
