"""Configuration of Celery's broker and result backend: memory, Redis or RabbitMQ."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

from config.errors import UsageError
from config.secrets import add_password, read_secret
from config.server_settings import ServerSettings
from tasks.policies import POLICIES

_MAX_TASK_SECONDS = max(policy.hard_time_limit for policy in POLICIES.values())
BROKER_SYSTEMS = {"redis": "redis", "rediss": "redis", "amqp": "rabbitmq", "amqps": "rabbitmq"}
"""Scheme of an address -> kind of broker."""
_DATABASE = re.compile(r"/*[0-9]*")
_TLS_PARAMETERS = {
    "ssl_cert_reqs": re.compile("(?:CERT_)?(?:none|optional|required)", re.IGNORECASE),
    "ssl_check_hostname": re.compile("true|false", re.IGNORECASE),
    "ssl_ca_certs": re.compile(".+"),
    "ssl_certfile": re.compile(".+"),
    "ssl_keyfile": re.compile(".+"),
}
"""Parameters of an address of rediss:// -> their values."""


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


def check_broker_address(setting: str, address: str) -> None:
    """Raise UsageError unless an address is one of Redis or RabbitMQ.

    Of parameters after `?`, only those of TLS are accepted: client libraries raise errors of no
    common class for the others.
    """
    try:
        parts = urlsplit(address)
        is_valid = parts.scheme in BROKER_SYSTEMS and parts.port != 0
    except ValueError:  # the port is not a number, or too large
        is_valid = False
    if not is_valid or (
        BROKER_SYSTEMS[parts.scheme] == "redis" and not _DATABASE.fullmatch(parts.path)
    ):
        raise UsageError(
            f"{setting} is not the address of a broker: write redis://host:port/db or "
            "amqp://user@host:port/vhost"
        )
    allowed = _TLS_PARAMETERS if parts.scheme == "rediss" else {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in allowed or not allowed[name].fullmatch(value):
            raise UsageError(
                f"{setting}: the parameter {name} is unknown or has an invalid value; a rediss:// "
                f"address may have {', '.join(_TLS_PARAMETERS)}, others have no parameters"
            )


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
    the loss of a node, and confirms publications. Raises UsageError for an invalid address.
    """
    check_broker_address("servers.broker", settings.broker)
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
