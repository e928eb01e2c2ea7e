"""Servers of the stack, with program, configuration and readiness check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deploy.stack import asking, programs
from deploy.stack.asking import HOST
from deploy.stack.java_server import JavaServer
from deploy.stack.language_model import LanguageModel
from deploy.stack.server import Server, write_private

USER = "skillbus"
"""User and virtual host of RabbitMQ."""


class Elasticsearch(JavaServer):
    """Elasticsearch's core, without security, scripts and the modules of the distribution."""

    name = "elasticsearch"
    ports = ("main", "transport")
    has_password = False
    package = "elasticsearch"
    main_class = "org.elasticsearch.node.Launcher"
    flags = ("--add-modules=jdk.incubator.vector",)

    @property
    def heap(self) -> str:
        """Set by `Memory`."""
        return self.memory.elasticsearch_heap

    @property
    def url(self) -> str:
        """`http://host:port`."""
        return f"http://{HOST}:{self.port}"

    def configure(self) -> None:
        """Write `config/elasticsearch.yml`."""
        settings: dict[str, object] = {
            "cluster.name": "skillbus-local",
            "node.name": self.name,
            **self._discovery(),
            "network.host": HOST,
            "http.port": self.port,
            "transport.port": self.place.ports["transport"],
            # Work on a nearly full disk, and with other large programs running.
            "cluster.routing.allocation.disk.threshold_enabled": "false",
            "indices.breaker.total.use_real_memory": "false",
        }
        lines = [f"{key}: {value}" for key, value in settings.items()]
        write_private(self.place.data / "config/elasticsearch.yml", "\n".join(lines) + "\n")

    def _discovery(self) -> Mapping[str, object]:
        """Return settings that elect this node without waiting; data nodes may join later."""
        return {"cluster.initial_master_nodes": f"[{self.name}]", "discovery.seed_hosts": "[]"}

    def ask(self, timeout: float) -> None:
        """Check the health of the cluster, which a node reports only once it has a master."""
        asking.ask_elasticsearch(self.port, timeout)


class ElasticsearchDataNode(Elasticsearch):
    """A second node of the cluster: it holds shards and cannot become the master."""

    name = "elasticsearch_2"
    joins = Elasticsearch.name

    def _discovery(self) -> Mapping[str, object]:
        first = f"{HOST}:{self.place.joined['transport']}"
        return {"node.roles": "[data]", "discovery.seed_hosts": f'["{first}"]'}


class Neo4j(JavaServer):
    """Neo4j's community edition, with Bolt only."""

    name = "neo4j"
    package = "neo4j"
    user = "neo4j"
    main_class = "Launcher"
    flags = tuple(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in ("java.nio", "java.lang", "sun.nio.ch")
    )

    @property
    def heap(self) -> str:
        """Set by `Memory`."""
        return self.memory.neo4j_heap

    @property
    def url(self) -> str:
        """`bolt://host:port`."""
        return f"bolt://{HOST}:{self.port}"

    def configure(self) -> None:
        """Write `neo4j.conf`."""
        settings: dict[str, object] = {
            "server.bolt.enabled": "true",
            "server.bolt.listen_address": f"{HOST}:{self.port}",
            "server.memory.pagecache.size": self.memory.neo4j_page_cache,
            "dbms.security.auth_enabled": "true",
            "server.directories.logs": self.log.with_suffix(""),
            "dbms.usage_report.enabled": "false",
            # After a kill, changes since the last checkpoint are replayed.
            "db.checkpoint.interval.time": "30s",
            # Neo4j waits this long, twice, when it stops.
            "internal.server.bolt.thread_pool_shutdown_wait_time": "0s",
        }
        lines = [f"{key}={value}" for key, value in settings.items()]
        write_private(self.place.data / "neo4j.conf", "\n".join(lines) + "\n")
        _ = self.password  # creates the file that the launcher reads

    def ask(self, timeout: float) -> None:
        """Run a query that reads no data."""
        asking.ask_neo4j(self.port, self.user, self.password, timeout)


class Redis(Server):
    """Redis with an append-only file, synced every second, that refuses writes when it is full."""

    name = "redis"

    @property
    def url(self) -> str:
        """`redis://host:port/0`."""
        return f"redis://{HOST}:{self.port}/0"

    def prepare(self) -> None:
        """Find the program and write the configuration."""
        programs.find("redis-server")
        lines = [
            f"bind {HOST}",
            f"port {self.port}",
            f'dir "{self.place.data}"',
            f"requirepass {self.password}",
            "appendonly yes",
            "appendfsync everysec",
            'save ""',
            "maxmemory 512mb",
            "maxmemory-policy noeviction",
        ]
        write_private(self.place.data / "redis.conf", "\n".join(lines) + "\n")

    def command(self) -> Sequence[str]:
        """Return the command of the system's `redis-server`."""
        return [programs.find("redis-server"), str(self.place.data / "redis.conf")]

    def ask(self, timeout: float) -> None:
        """Send PING."""
        asking.ask_redis(self.port, self.password, timeout)


class RabbitMQ(Server):
    """RabbitMQ with its own port mapper (epmd), which ends with the server."""

    name = "rabbitmq"
    ports = ("main", "distribution", "epmd")

    @property
    def url(self) -> str:
        """`amqp://user@host:port/vhost`."""
        return f"amqp://{USER}@{HOST}:{self.port}/{USER}"

    def prepare(self) -> None:
        """Find the programs and write the configuration."""
        self._program()
        programs.find("epmd")
        lines = [
            f"default_vhost = {USER}",
            f"default_user = {USER}",
            f"default_pass = {self.password}",
            "log.console = true",
            "log.console.level = info",
            "log.file = false",
            "disk_free_limit.absolute = 50MB",
            # The write-ahead log of quorum queues is kept in memory up to this size.
            "raft.wal_max_size_bytes = 32000000",
        ]
        write_private(self.place.data / "rabbitmq.conf", "\n".join(lines) + "\n")
        write_private(self.place.data / "enabled_plugins", "[].\n")

    def command(self) -> Sequence[str]:
        """Return the command of the system's `rabbitmq-server`."""
        return [self._program()]

    def environment(self) -> Mapping[str, str]:
        """Return ports and paths, in place of RabbitMQ's defaults in the system's folders."""
        data = self.place.data
        return {
            "HOME": str(data),  # folder of the Erlang cookie
            "ERL_EPMD_ADDRESS": HOST,
            "ERL_EPMD_PORT": str(self.place.ports["epmd"]),
            "RABBITMQ_NODENAME": f"skillbus{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": HOST,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self.place.ports["distribution"]),
            "RABBITMQ_CONF_ENV_FILE": str(data / "rabbitmq-env.conf"),
            "RABBITMQ_CONFIG_FILE": str(data / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(data / "advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(data / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(data / "mnesia"),
            "RABBITMQ_LOG_BASE": str(data / "log"),
            "RABBITMQ_PID_FILE": str(data / "pid"),
            # The script becomes the server process instead of waiting for it, ...
            "RABBITMQ_ALLOW_INPUT": "1",
            # ... reads no input, and listens on loopback only.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-noinput"
            " -kernel inet_dist_use_interface {127,0,0,1}",
        }

    def helper_commands(self) -> Mapping[str, Sequence[str]]:
        """Return the port mapper; otherwise Erlang would start one that keeps running."""
        port = str(self.place.ports["epmd"])
        return {"epmd": [programs.find("epmd"), "-address", HOST, "-port", port]}

    def ask(self, timeout: float) -> None:
        """Open the virtual host."""
        asking.ask_rabbitmq(self.port, USER, self.password, USER, timeout)

    def _program(self) -> str:
        return programs.find("rabbitmq-server", programs.RABBITMQ_FOLDER)


KINDS: Mapping[str, type[Server]] = {
    kind.name: kind
    for kind in (Elasticsearch, ElasticsearchDataNode, Neo4j, Redis, RabbitMQ, LanguageModel)
}
"""Server classes by name."""
