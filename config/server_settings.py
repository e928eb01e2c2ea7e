"""Settings of the servers of the distributed deployment."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, Field, model_validator

from config.settings_group import SettingsGroup

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


def _check_broker(address: str) -> str:
    """Raise ValueError unless an address is empty, or one of Redis or RabbitMQ.

    Of parameters after `?`, only those of TLS are accepted: client libraries raise errors of no
    common class for the others, when they connect.
    """
    if not address:
        return address
    try:
        parts = urlsplit(address)
        system = BROKER_SYSTEMS.get(parts.scheme) if parts.port != 0 else None
    except ValueError:  # the port is not a number, or too large
        system = None
    if system is None or (system == "redis" and not _DATABASE.fullmatch(parts.path)):
        raise ValueError("write redis://host:port/db or amqp://user@host:port/vhost")
    allowed = _TLS_PARAMETERS if parts.scheme == "rediss" else {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in allowed or not allowed[name].fullmatch(value):
            raise ValueError(
                f"the parameter {name} is unknown or has an invalid value; a rediss:// address may "
                f"have {', '.join(_TLS_PARAMETERS)}, others have no parameters"
            )
    return address


def _check_redis(address: str) -> str:
    """Raise ValueError unless an address is empty, or one of Redis."""
    if address and not address.startswith(("redis://", "rediss://")):
        raise ValueError("write redis://host:port/db")
    return _check_broker(address)


BrokerAddress = Annotated[str, AfterValidator(_check_broker)]
RedisAddress = Annotated[str, AfterValidator(_check_redis)]


class ServerSettings(SettingsGroup):
    """Servers of the distributed deployment. All empty: everything runs embedded, in `home`.

    Addresses are URLs without a password. A password is the only line of the file that a setting
    names. Broker: `redis://host:port/db` or `amqp://user@host:port/vhost`.
    """

    broker: BrokerAddress = Field("", description="queues of tasks: Redis or RabbitMQ")
    broker_password_file: Path | None = Field(None, description="file with its password")
    redis: RedisAddress = Field(
        "", description="results, accepted events and queries; empty: the broker, if it is Redis"
    )
    redis_password_file: Path | None = Field(None, description="file with its password")
    elasticsearch: str = Field("", description="URLs, separated by commas")
    elasticsearch_user: str = Field("elastic", description="user, if a password is set")
    elasticsearch_password_file: Path | None = Field(None, description="file with its password")
    elasticsearch_ca_file: Path | None = Field(
        None, description="CA certificates for https addresses"
    )
    elasticsearch_prefix: str = Field(
        "skillbus", pattern=r"^[a-z][a-z0-9_]{0,40}$", description="prefix of its index names"
    )
    elasticsearch_shards: int = Field(1, ge=1, le=64, description="shards of a new index")
    elasticsearch_replicas: int = Field(0, ge=0, le=8, description="replicas of a new index")
    neo4j: str = Field("", description="`bolt://host:port` or `neo4j://host:port`")
    neo4j_user: str = Field("neo4j", description="user, if a password is set")
    neo4j_password_file: Path | None = Field(None, description="file with its password")
    neo4j_database: str = Field("neo4j", description="database that only skillbus uses")
    neo4j_passages: bool = Field(
        False, description="write passages as nodes too, for exploring the graph"
    )
    timeout_seconds: float = Field(10.0, gt=0, description="time limit of one call to a server")

    @model_validator(mode="after")
    def _all_or_none(self) -> ServerSettings:
        if self.broker.startswith("redis") and not self.redis:
            object.__setattr__(self, "redis", self.broker)
            object.__setattr__(self, "redis_password_file", self.broker_password_file)
        named = {
            "broker": self.broker,
            "redis": self.redis,
            "elasticsearch": self.elasticsearch,
            "neo4j": self.neo4j,
        }
        missing = [name for name, address in named.items() if not address]
        if 0 < len(missing) < len(named):
            raise ValueError(
                f"no address for {', '.join(missing)}: set the address of every server, or of none"
            )
        return self
