"""Settings of the servers of the distributed deployment."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from config.settings_group import SettingsGroup


class ServerSettings(SettingsGroup):
    """Servers of the distributed deployment. All empty: everything runs embedded, in `home`.

    Addresses are URLs without a password. A password is the only line of the file that a setting
    names. Broker: `redis://host:port/db` or `amqp://user@host:port/vhost`.
    """

    broker: str = Field("", description="queues of tasks: Redis or RabbitMQ")
    broker_password_file: Path | None = Field(None, description="file with its password")
    redis: str = Field(
        "", description="results, accepted events and queries; empty: the broker, if it is Redis"
    )
    redis_password_file: Path | None = Field(None, description="file with its password")
    elasticsearch: str = Field("", description="URLs, separated by commas")
    elasticsearch_user: str = Field("elastic", description="used together with a password")
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
    neo4j_user: str = Field("neo4j", description="used together with a password")
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
