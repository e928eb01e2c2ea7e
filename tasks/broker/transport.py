"""What carries tasks and results: the memory of this process, Redis or RabbitMQ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from config.errors import UsageError
from config.secrets import add_password, read_secret, strip_password
from config.settings import ServerSettings
from tasks.policies import POLICIES

_POLL_SECONDS = 0.002
_LONGEST = max(policy.hard_time_limit for policy in POLICIES.values())
_REDIS, _RABBITMQ = ("redis", "rediss"), ("amqp", "amqps")


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Where Celery sends and reads, with passwords: never shown.

    options: of the broker's connection. queue_arguments: with which queues are declared. carrier:
    kombu's transport as `module:Class`; empty: the one of the address.
    """

    broker_url: str = field(repr=False)
    result_backend: str = field(repr=False)
    options: Mapping[str, object]
    queue_arguments: Mapping[str, object] = field(default_factory=dict)
    transport_class: str = ""


def memory_broker_config() -> BrokerConfig:
    """The memory of this process; it forgets, so a journal stands before it."""
    options = {"polling_interval": _POLL_SECONDS}
    return BrokerConfig("memory://localhost//", "cache+memory://", options)


def server_broker_config(settings: ServerSettings) -> BrokerConfig:
    """The broker that the settings name, with results in Redis.

    A message that Redis has handed out comes back after the visibility timeout, so it stays above
    what a task and the one before it may take. RabbitMQ keeps quorum queues, which survive the
    loss of a node, and confirms what is published. Raises UsageError for an address that is none.
    """
    scheme = urlsplit(settings.broker).scheme
    if scheme not in (*_REDIS, *_RABBITMQ):
        raise UsageError(
            f"servers.broker: {strip_password(settings.broker)}: write redis://host:port/db or "
            "amqp://user@host:port/vhost"
        )
    secret = read_secret(settings.broker_password_file, "servers.broker_password_file")
    broker = add_password(settings.broker, secret)
    secret = read_secret(settings.redis_password_file, "servers.redis_password_file")
    results = add_password(settings.redis, secret)
    seconds = settings.timeout_seconds
    if scheme in _REDIS:
        options: dict[str, object] = {
            "visibility_timeout": int(2 * _LONGEST + 60),
            "socket_timeout": seconds,
            "socket_connect_timeout": seconds,
            "socket_keepalive": True,
            "health_check_interval": 10,
        }
        return BrokerConfig(
            broker, results, options, transport_class="tasks.broker.redis_transport:Transport"
        )
    options = {"confirm_publish": True, "connect_timeout": seconds, "read_timeout": seconds}
    return BrokerConfig(broker, results, options, {"x-queue-type": "quorum"})
