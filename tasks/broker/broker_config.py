"""Configuration of Celery's broker and result backend: memory, Redis or RabbitMQ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from config.secrets import add_password, read_secret
from config.server_settings import BROKER_SYSTEMS, ServerSettings
from tasks.policies import POLICIES

_MAX_TASK_SECONDS = max(policy.hard_time_limit for policy in POLICIES.values())


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Celery's broker and result backend; the URLs hold passwords and are left out of `repr`.

    options: transport options of the broker connection. queue_arguments: arguments that queues are
    declared with. transport_class: kombu transport as `module:Class`; empty for the URL's own.
    """

    broker_url: str = field(repr=False)
    result_backend: str = field(repr=False)
    options: Mapping[str, object]
    queue_arguments: Mapping[str, object] = field(default_factory=dict)
    transport_class: str = ""

    @property
    def system(self) -> str:
        """The kind of broker: `memory`, `redis` or `rabbitmq`."""
        scheme = urlsplit(self.broker_url).scheme
        return BROKER_SYSTEMS.get(scheme, scheme)


def memory_broker_config() -> BrokerConfig:
    """Return a broker in the memory of this process; the journal keeps what a restart would
    lose."""
    return BrokerConfig(
        "memory://localhost//",
        "cache+memory://",
        {},
        transport_class="tasks.broker.memory_transport:Transport",
    )


def server_broker_config(settings: ServerSettings) -> BrokerConfig:
    """Return the broker in the settings, with results in Redis.

    Redis delivers an unacknowledged message again after the visibility timeout, which is therefore
    longer than a task and the one before it may take. RabbitMQ uses quorum queues, which survive
    the loss of a node, and confirms publications.
    """
    password = read_secret(settings.broker_password_file, "servers.broker_password_file")
    broker = add_password(settings.broker, password)
    password = read_secret(settings.redis_password_file, "servers.redis_password_file")
    results = add_password(settings.redis, password)
    seconds = settings.timeout_seconds
    if BROKER_SYSTEMS[urlsplit(settings.broker).scheme] == "redis":
        options: dict[str, object] = {
            "visibility_timeout": int(2 * _MAX_TASK_SECONDS + 60),
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
