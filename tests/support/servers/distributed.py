"""A distributed deployment for tests: real worker processes on the real servers of the test run.

A server's data is shared by the whole run: a deployment has a Redis database and an index prefix of
its own, but Neo4j and RabbitMQ are emptied for it, so only one is in use at a time. The fixtures
here are of module scope for that reason; a test module imports those that it uses.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from redis import Redis

from config.settings import Settings
from deploy.stack.ports import free_port
from search.elastic.connection import ElasticsearchConnection
from search.elastic.index import ElasticsearchIndex
from search.models.load_models import encoder_identity
from tasks.broker.redis_connection import connect
from tasks.policies import OUTCOMES_QUEUE
from tasks.send import queue_depth
from tests.support.program.program import NO_TLS, ForkServer, Process, Result, Skillbus, wait_for
from tests.support.samples.catalog import empty_catalog, open_catalog
from tests.support.servers.servers import RunServers
from workers.backend.distributed import DistributedBackend
from workers.processes.workloads import ALL_QUEUES, WORKLOADS

Broker = Literal["redis", "rabbitmq"]

_DATABASE = 9
_PREFIX = f"test{os.getpid()}_distributed"
_STOP_SECONDS = 120.0
_READY_LINE = "worker ready"

REST = "rest"
"""A worker of all workloads but `query` and `ingest`: most tests need no process for each."""

TOGETHER = ("query", "ingest", REST)
"""Workers that together take from all queues."""

_QUEUES = {workload.name: workload.queues for workload in WORKLOADS}
_QUEUES[REST] = tuple(
    queue for name, queues in _QUEUES.items() if name not in TOGETHER for queue in queues
)


class Worker:
    """A worker process: a parent that talks to the broker, and children that run tasks."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._seen: dict[int, int] = {}
        """Process ids of children -> their pidfd: another process may have the id later."""

    @property
    def pid(self) -> int:
        """The parent."""
        return self.process.pid

    @property
    def running(self) -> bool:
        """Whether the parent is there."""
        return not self.process.ended.is_set()

    @property
    def ready(self) -> bool:
        """Whether it takes tasks."""
        return _READY_LINE in self.process.text("err")

    def children(self) -> list[int]:
        """Process ids of its children."""
        path = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            children = [int(pid) for pid in path.read_text().split()]
            for pid in children:
                if pid not in self._seen:
                    with contextlib.suppress(ProcessLookupError):
                        self._seen[pid] = os.pidfd_open(pid)
            return children
        return []

    def log(self) -> list[dict[str, Any]]:
        """What it logged, as data; lines that are no JSON are left out."""
        lines = []
        for line in self.process.text("err").splitlines():
            with contextlib.suppress(ValueError):
                if isinstance(value := json.loads(line), dict):
                    lines.append(value)
        return lines

    def send(self, number: int) -> None:
        """Send a signal to the parent."""
        self.process.send(number)

    def kill_children(self, number: int = signal.SIGKILL) -> list[int]:
        """Send a signal to every child, SIGKILL at default; the parent starts others."""
        children = self.children()
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return children

    def kill(self) -> None:
        """End parent and children as a power cut would."""
        self.children()
        self.process.kill()
        while self._seen:
            _, child = self._seen.popitem()
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(child, signal.SIGKILL)
            os.close(child)

    def stop(self, seconds: float = _STOP_SECONDS) -> Result:
        """SIGTERM, and wait for its end."""
        self.send(signal.SIGTERM)
        return self.process.wait(seconds)


class Distributed:
    """One deployment. `skillbus` is its command line, `settings` what its processes read."""

    def __init__(
        self,
        fork_server: ForkServer,
        servers: RunServers,
        folder: Path,
        broker: Broker = "redis",
        env: dict[str, str] | None = None,
    ) -> None:
        self.broker = broker
        self.folder = folder
        own = _addresses(servers, broker)
        variables = {f"SKILLBUS_SERVERS__{name.upper()}": value for name, value in own.items()}
        # On a busy machine a query may take longer than the defaults leave it.
        patient = {
            "SKILLBUS_WORKERS__QUERY_SECONDS": "120",
            "SKILLBUS_GATEWAY__WAIT_SECONDS": "60",
        }
        self.env = {"SKILLBUS_LOG_LEVEL": "info", **patient, **variables, **(env or {})}
        self.settings = settings_of(folder / "home", self.env)
        self._server = fork_server
        self.workers: dict[str, Worker] = {}

    @property
    def skillbus(self) -> Skillbus:
        """The command line."""
        return Skillbus(self._server, self.folder / "home", **self.env)

    # -- workers
    def start(self, *workloads: str, **env: str) -> None:
        """Start workers by their names, those of TOGETHER at default, until they take tasks.

        `env` is theirs alone, on top of the deployment's.
        """
        names = workloads or TOGETHER
        for name in names:
            self.launch(name, **env)
        self.wait_ready(*names)

    def launch(self, workload: str, *, name: str = "", queues: str = "", **env: str) -> Worker:
        """Start one worker and return while it starts; it takes the place of one that ended.

        name: under which it is known, for a second one of a workload. queues: only these.
        """
        short = queues or ",".join(one.removeprefix("skillbus.") for one in _QUEUES[workload])
        program = Skillbus(self._server, self.folder / "home", **(self.env | env))
        count = ("--processes", "1", "--supervisor", str(self._server.pid))
        process = program.start("worker", "--queues", short, *count)
        self.workers[name or workload] = Worker(process)
        return self.workers[name or workload]

    def wait_ready(self, *workloads: str, seconds: float = 120.0) -> None:
        """Wait until workers take tasks; one that ends instead fails the test with its log."""

        def ready(worker: Worker) -> bool:
            assert worker.running, worker.process.text("err")
            return worker.ready

        for name in workloads or tuple(self.workers):
            wait_for(partial(ready, self.workers[name]), seconds)

    def stop(self, *workloads: str) -> None:
        """Stop workers softly; all at default."""
        stopped = [self.workers.pop(name) for name in workloads or tuple(self.workers)]
        for worker in stopped:
            worker.send(signal.SIGTERM)
        for worker in stopped:
            worker.process.wait(_STOP_SECONDS)

    def kill(self, *workloads: str) -> None:
        """Kill workers, parents and children; all at default."""
        for name in workloads or tuple(self.workers):
            self.workers.pop(name).kill()

    def log(self, workload: str = "") -> list[dict[str, Any]]:
        """What the running workers logged, as data."""
        names = [workload] if workload else list(self.workers)
        return [line for name in names for line in self.workers[name].log()]

    @contextlib.contextmanager
    def gateway(self, **env: str) -> Iterator[tuple[httpx.Client, Process]]:
        """A gateway with a client that may do all; `env` is the gateway's alone. It ends in order.

        The process is there to be looked at.
        """
        port = free_port(set())
        address = f"127.0.0.1:{port}"
        secret = self.skillbus("tokens", "add", f"ops-{port}", "--scope", "admin").out.strip()
        program = Skillbus(self._server, self.folder / "home", **(self.env | env))
        process = program.start("gateway", "--listen", address)
        headers = {"Authorization": f"Bearer {secret}"}
        with httpx.Client(
            base_url=f"http://{address}", headers=headers, timeout=60, verify=NO_TLS
        ) as client:
            wait_for(lambda: process.ended.is_set() or _answers(client), 120)
            assert not process.ended.is_set(), process.text("err")
            yield client, process
        process.send(signal.SIGTERM)
        assert process.wait(_STOP_SECONDS).code == 0, process.text("err")[-2000:]

    # -- direct access
    @contextlib.contextmanager
    def backend(self, **workers: Any) -> Iterator[DistributedBackend]:
        """A channel of the test's own; `workers` are settings of that group in its place."""
        changed = self.settings.workers.model_copy(update=workers)
        with DistributedBackend(self.settings.model_copy(update={"workers": changed})) as backend:
            yield backend

    @contextlib.contextmanager
    def redis(self) -> Iterator[Redis]:
        """The Redis database of journal and results, and of the broker where that is Redis."""
        with connect(self.settings.servers) as client:
            yield client

    @contextlib.contextmanager
    def index(self) -> Iterator[ElasticsearchIndex]:
        """The search index, writable."""
        identity = encoder_identity(self.settings.encoder)
        index = ElasticsearchIndex(
            self.settings.servers, identity.model, identity.dimension, writable=True, caching=False
        )
        try:
            yield index
        finally:
            index.close()

    # -- how far it is
    def unfinished(self, backend: DistributedBackend, embedded: bool = True) -> dict[str, int]:
        """The first of what is not done yet, by name; empty when all is. Nothing else is asked:
        the counts of the catalog take the servers longer than the rest."""
        return next(({name: left} for name, left in self._counts(backend, embedded) if left), {})

    def _counts(self, backend: DistributedBackend, embedded: bool) -> Iterator[tuple[str, int]]:
        yield "events", backend.journal.count_open_jobs("event")
        counts = backend.graph.get_counts()
        yield "waiting", counts["waiting"]
        yield "unlinked", counts["unlinked"]
        if embedded:
            yield "without vectors", counts["published"] - counts["with_vectors"]
            yield "unembedded", counts["published"] - counts["embedded"]
        yield "running", len(backend.coordinator.get_running_tasks())
        for queue in self._watched_queues():
            yield queue, queue_depth(backend.app, queue)

    def _watched_queues(self) -> list[str]:
        """All queues, without that of outcomes if it has no worker: roll-ups are sent to it."""
        counted = {"outcomes", REST} & self.workers.keys()
        return [one for one in ALL_QUEUES if one != OUTCOMES_QUEUE or counted]

    def wait_done(self, seconds: float = 120.0, embedded: bool = True) -> None:
        """Wait until all that was accepted is carried out, linked and embedded."""
        left: dict[str, int] = {}
        end = time.monotonic() + seconds
        with self.backend() as backend:
            while left := self.unfinished(backend, embedded):
                assert time.monotonic() < end, f"after {seconds} s still {left}\n{self._tail()}"
                time.sleep(0.2)

    def _tail(self) -> str:
        texts = (worker.process.text("err")[-2000:] for worker in self.workers.values())
        return "\n---\n".join(texts)

    # -- beginning and end
    def wipe(self) -> None:
        """Empty every store; no worker may be running."""
        assert not any(worker.running for worker in self.workers.values())
        with self.redis() as client:
            client.flushdb()
        if self.broker == "rabbitmq":
            self._drop_queues()
        servers = self.settings.servers
        open_catalog(servers).close()
        empty_catalog(servers)
        with self.index() as index:
            index.ensure()
            index.delete(index.list_keys())

    def _drop_queues(self) -> None:
        with self.backend() as backend, backend.app.connection_for_write() as connection:
            for queue in ALL_QUEUES:
                with connection.channel() as channel:
                    channel.queue_delete(queue)

    def close(self) -> None:
        """Kill the workers, and leave the servers as if nothing had been."""
        self.kill()
        self.wipe()
        self.drop_indices()

    def drop_indices(self) -> None:
        """Delete the indices of the search index."""
        connection = ElasticsearchConnection(self.settings.servers)
        try:
            with connection.translate_errors() as client:
                made = client.indices.get_alias(index=f"{_PREFIX}-*")
                if made:
                    client.indices.delete(index=",".join(made))
        finally:
            connection.close()


@dataclass(frozen=True)
class Deployments:
    """Makes deployments, each on empty stores, after closing the one before."""

    make_one: Callable[..., Distributed]

    def __call__(self, broker: Broker = "redis", /, **env: str) -> Distributed:
        """A deployment without workers yet. `env`: variables such as SKILLBUS_WORKERS__…"""
        return self.make_one(broker, env)


@pytest.fixture(scope="module")
def deployments(
    fork_server: ForkServer,
    run_servers: RunServers,
    elasticsearch_url: str,
    neo4j_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Deployments]:
    """A maker of deployments; the slow servers are named, so that they start side by side."""
    made: list[Distributed] = []

    def make(broker: Broker, env: dict[str, str]) -> Distributed:
        if made:
            made.pop().kill()
        folder = tmp_path_factory.mktemp("distributed")
        made.append(Distributed(fork_server, run_servers, folder, broker, env))
        made[-1].wipe()
        return made[-1]

    yield Deployments(make)
    if made:
        made[-1].close()


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/healthz").is_success
    except httpx.TransportError:
        return False


def settings_of(home: Path, env: dict[str, str]) -> Settings:
    """Settings as a process with this environment reads them."""
    values: dict[str, Any] = {"home": home}
    for name, value in env.items():
        *groups, last = name.removeprefix("SKILLBUS_").lower().split("__")
        group = values
        for each in groups:
            group = group.setdefault(each, {})
        group[last] = json.loads(value) if value.startswith(("[", "{")) else value
    return Settings(**values)


def _addresses(servers: RunServers, broker: Broker) -> dict[str, str]:
    base = servers.url("redis").rpartition("/")[0]
    found = {
        "elasticsearch": servers.url("elasticsearch"),
        "elasticsearch_prefix": _PREFIX,
        "neo4j": servers.url("neo4j"),
        "redis": f"{base}/{_DATABASE}",
        "broker": f"{base}/{_DATABASE}" if broker == "redis" else servers.url(broker),
    }
    for name, server in (
        ("elasticsearch", "elasticsearch"),
        ("neo4j", "neo4j"),
        ("redis", "redis"),
        ("broker", broker),
    ):
        file = servers.password_file(server)
        if file is not None:
            found[f"{name}_password_file"] = str(file)
    return found
