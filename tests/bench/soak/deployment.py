"""The deployment of a soak: servers, workers and a gateway, each killed and started again."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx

from config.settings import Settings
from deploy.stack import Server, Stack, processes
from deploy.stack.ports import free_port
from deploy.stack.processes import Process
from tests.support.servers.distributed import settings_of
from workers.http.tokens import TokenScope, open_token_store
from workers.processes.interpreter import skillbus_command
from workers.processes.workloads import WORKLOADS, Workload

SERVERS = ("elasticsearch", "neo4j", "redis")
GATEWAY = "gateway"
WORKER = "worker-"

SHRUNK = 12
"""Eight hours in forty minutes. What is kept for a time is kept for a twelfth of it, so that what
is stored reaches its steady size within the run as it does within a day."""

RETENTION = {
    "SKILLBUS_WORKERS__ANSWER_MINUTES": str(60 / SHRUNK),
    "SKILLBUS_WORKERS__KEEP_SECONDS": str(60 / SHRUNK),
    # Seven days exceed eight hours, too: ended events are kept as long as the soak needs them.
    "SKILLBUS_WORKERS__JOURNAL_DAYS": str(8 / 24 / 60),
}

READY_SECONDS = 300.0
"""Time limit of a start: Neo4j reads its log after a kill."""

DOWN_SECONDS = 5.0
"""Between a kill and the start of the same process: what a supervisor or a person may take."""

_POLL_SECONDS = 0.2


@dataclass
class Program:
    """A process of skillbus. ready_url: answers with success once it does its work."""

    name: str
    command: list[str]
    environment: dict[str, str]
    log: Path
    ready_url: str
    process: Process | None = None

    def start(self) -> None:
        """Start it, without waiting."""
        self.process = processes.start(
            self.command, log=self.log, environment=self.environment, tethered=True
        )

    def is_running(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and self.process.alive()

    def is_ready(self) -> bool:
        """Whether it does its work."""
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(self.ready_url, timeout=10).is_success
        return False


class Deployment:
    """Servers, workers and a gateway in one folder; used as a context manager, it ends them all.

    sections: whether sections get vectors. rate: requests a second that a token may send.
    """

    def __init__(self, folder: Path, *, sections: bool, rate: float) -> None:
        self.folder = folder
        self.logs = folder / "logs"
        self.sections = sections
        self.stack = Stack(folder / "servers", tethered=True)
        self.programs: dict[str, Program] = {}
        self.died: list[str] = []
        self.down = ""
        self._lock = threading.Lock()
        self.environment: dict[str, str] = {}
        self._rate = rate

    def __enter__(self) -> Deployment:
        """Start the servers and wait until they work."""
        self.logs.mkdir(parents=True, exist_ok=True)
        (self.folder / "home").mkdir(parents=True, exist_ok=True)
        self.stack.start(SERVERS)
        self.environment = self._make_environment()
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the processes, children of workers included, and delete the servers' data."""
        for program in self.programs.values():
            if program.process is not None:
                program.process.end(30.0)
        self.stack.stop()

    def _make_environment(self) -> dict[str, str]:
        found = {"SKILLBUS_HOME": str(self.folder / "home"), "SKILLBUS_LOG_LEVEL": "info"}
        servers: dict[str, Server] = {name: self.stack.server(name) for name in SERVERS}
        for name, server in (*servers.items(), ("broker", servers["redis"])):
            found[f"SKILLBUS_SERVERS__{name.upper()}"] = server.url
            if server.password_file is not None:
                found[f"SKILLBUS_SERVERS__{name.upper()}_PASSWORD_FILE"] = str(server.password_file)
        found["SKILLBUS_GATEWAY__REQUESTS_A_MINUTE"] = str(120 * self._rate + 600)
        return found | RETENTION

    @property
    def settings(self) -> Settings:
        """What the processes read."""
        return settings_of(self.folder / "home", self.environment)

    def fill(self, home: Path) -> dict[str, object]:
        """Copy an embedded library into the servers; nothing is encoded."""
        done = subprocess.run(
            [sys.executable, "-m", "tests.bench.fill", str(home)],
            env={**os.environ, **self.environment},
            stdout=subprocess.PIPE,
            check=True,
        )
        copied: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
        return copied

    # -- processes of skillbus
    def start_programs(self) -> None:
        """Start a worker for each workload and the gateway, and wait until they work."""
        for workload in self.workloads():
            self._add_worker(workload)
        address = f"127.0.0.1:{free_port(self._ports())}"
        self._add(GATEWAY, ["gateway", "--listen", address], {}, f"http://{address}/readyz")
        for program in self.programs.values():
            program.start()
        self.wait_ready(*self.programs)

    def workloads(self) -> list[Workload]:
        """The workloads that have a worker."""
        return [one for one in WORKLOADS if self.sections or one.name != "embed_sections"]

    def _add_worker(self, workload: Workload) -> None:
        queues = ",".join(queue.removeprefix("skillbus.") for queue in workload.queues)
        port = free_port(self._ports())
        own = {"SKILLBUS_WORKERS__METRICS_PORT": str(port)}
        arguments = ["worker", "--queues", queues, "--processes", "1"]
        self._add(f"{WORKER}{workload.name}", arguments, own, f"http://127.0.0.1:{port}/readyz")

    def _add(self, name: str, arguments: list[str], own: dict[str, str], ready_url: str) -> None:
        self.programs[name] = Program(
            name,
            skillbus_command(arguments),
            {**self.environment, **own},
            self.logs / f"{name}.log",
            ready_url,
        )

    def _ports(self) -> set[int]:
        own = {httpx.URL(one.ready_url).port or 0 for one in self.programs.values()}
        servers = self.stack.servers.values()
        return own | {port for server in servers for port in server.place.ports.values()}

    @property
    def gateway_url(self) -> str:
        """The address of the gateway."""
        return self.programs[GATEWAY].ready_url.removesuffix("/readyz")

    def make_token(self, name: str, scope: TokenScope) -> str:
        """A new token of the gateway."""
        return open_token_store(self.settings).add(name, scope)

    # -- kill and start again
    def pids(self) -> dict[str, int]:
        """Process id by name, of all that run."""
        found = {
            name: server.pid for name, server in self.stack.servers.items() if server.running()
        }
        for name, program in self.programs.items():
            if program.process is not None and program.is_running():
                found[name] = program.process.pid
        return found

    def kill(self, name: str) -> None:
        """Send SIGKILL to a process, not to its children."""
        with self._lock:
            self.down = name
            if name in SERVERS:
                self.stack.server(name).kill()
            elif (process := self.programs[name].process) is not None:
                process.kill()

    def start_again(self, name: str) -> None:
        """Start a killed process with its port and data, and wait until it works."""
        if name in SERVERS:
            self.stack.server(name).start_again(wait=False)
        else:
            self.programs[name].start()
        self.down = ""
        if name in SERVERS:
            self.stack.server(name).wait_ready(READY_SECONDS)
        else:
            self.wait_ready(name)

    def wait_ready(self, *names: str) -> None:
        """Wait until programs work; one that ends instead is started again."""
        for name in names:
            self._wait(self.programs[name].is_ready, name)

    def _wait(self, condition: Callable[[], bool], name: str) -> None:
        end = time.monotonic() + READY_SECONDS
        while not condition():
            self.restart_ended(name)
            if time.monotonic() > end:
                raise SystemExit(f"{name} did not become ready: see {self.programs[name].log}")
            time.sleep(_POLL_SECONDS)

    def restart_ended(self, *names: str) -> None:
        """Start programs that ended without being killed again, all unless named; note which."""
        for name in names or tuple(self.programs):
            program = self.programs[name]
            with self._lock:
                if name != self.down and not program.is_running():
                    self.died.append(f"{name}, at {time.strftime('%H:%M:%S')}: see {program.log}")
                    program.start()
