"""A server of the stack: start, readiness check, freeze, kill and restart."""

from __future__ import annotations

import os
import secrets
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from deploy.stack import processes
from deploy.stack.asking import HOST, NotReadyError
from deploy.stack.errors import StackError
from deploy.stack.ports import problem_with
from deploy.stack.processes import Process

START_SECONDS = 180.0
"""Timeout of a start; Neo4j after a crash takes the longest."""

HELPER_SECONDS = 30.0
"""Timeout until a helper program listens."""

ASK_SECONDS = 2.0
"""Timeout of one readiness check."""

LOG_LINES = 15
"""Last lines of a log in an error message."""

STAMP = "stk_"
"""Prefix of all passwords, by which tests find leaked passwords."""


@dataclass(frozen=True)
class Memory:
    """Memory limits of the Java servers, in the format of `-Xmx`."""

    elasticsearch_heap: str = "768m"
    neo4j_heap: str = "768m"
    neo4j_page_cache: str = "128m"


@dataclass(frozen=True)
class Place:
    """Data folder, log file and loopback ports of a server."""

    data: Path
    log: Path
    ports: Mapping[str, int]
    """Use -> port; `main` is the port for clients."""
    joined: Mapping[str, int] = field(default_factory=dict)
    """Ports of the server whose cluster this server joins."""


class Server(ABC):
    """A server on loopback with its own data and password.

    A restart keeps port, data and password. Subclasses define the program and its readiness check.
    """

    name: ClassVar[str]
    ports: ClassVar[tuple[str, ...]] = ("main",)
    has_password: ClassVar[bool] = True
    joins: ClassVar[str | None] = None
    """Name of the server whose cluster this server joins, and which is started first."""

    def __init__(self, place: Place, memory: Memory, *, tethered: bool) -> None:
        self.place = place
        self.memory = memory
        self.tethered = tethered
        self.process: Process | None = None
        self.helpers: dict[str, Process] = {}

    @property
    @abstractmethod
    def url(self) -> str:
        """Address for the settings, without the password."""

    @abstractmethod
    def prepare(self) -> None:
        """Find or fetch the programs and write the configuration; idempotent."""

    @abstractmethod
    def command(self) -> Sequence[str]:
        """Return the program and its arguments, without a password; call `prepare` first."""

    @abstractmethod
    def ask(self, timeout: float) -> None:
        """Check that the server is ready; raises OSError or NotReadyError."""

    def environment(self) -> Mapping[str, str]:
        """Return environment variables in addition to those of this process."""
        return {}

    def helper_commands(self) -> Mapping[str, Sequence[str]]:
        """Return port name -> helper program that must listen there before the server starts."""
        return {}

    @property
    def port(self) -> int:
        """The port for clients."""
        return self.place.ports["main"]

    @property
    def log(self) -> Path:
        """The file with the output of the server."""
        return self.place.log

    @property
    def password_file(self) -> Path | None:
        """The file with the password in one line; None if the server has none."""
        return self.place.data / "password" if self.has_password else None

    @property
    def pid(self) -> int:
        """The id of the server's process. Raises StackError before the first start."""
        return self._started().pid

    @property
    def password(self) -> str:
        """The password, created on first use; empty if the server has none."""
        path = self.password_file
        if path is None:
            return ""
        if not path.exists():
            write_private(path, f"{STAMP}{secrets.token_urlsafe(24)}\n")
        return path.read_text(encoding="utf-8").strip()

    def start(self) -> None:
        """Start the server without waiting until it is ready (`wait_ready`).

        Raises UnavailableError if a package must be installed, StackError if a port is in use.
        """
        self.place.log.parent.mkdir(parents=True, exist_ok=True)
        self.prepare()
        self.check_ports()
        for name, command in self.helper_commands().items():
            if name not in self.running_helpers():
                self.helpers[name] = self._run(command)
                self._wait_listening(self.place.ports[name])
        self.process = self._run(self.command())

    def check_ports(self) -> None:
        """Raise StackError if another program uses a port of this server."""
        running = self.running_helpers()
        for use, port in self.place.ports.items():
            if use in running:  # it uses the port itself
                continue
            problem = problem_with(port)
            if problem is not None:
                raise StackError(
                    f"{self.name} cannot have port {port} on {HOST}: {problem};"
                    " stop what has it, or name another port"
                )

    def wait_ready(self, seconds: float = START_SECONDS) -> None:
        """Wait until the server is ready.

        Raises StackError with the last lines of its log if it ended or is not ready in time.
        """
        deadline = time.monotonic() + seconds
        while (problem := self.problem()) is not None:
            if not self.running():
                raise StackError(f"{self.name} ended while it started{self._log_end()}")
            if time.monotonic() >= deadline:
                raise StackError(
                    f"{self.name} was not ready within {seconds:.0f} s: {problem}{self._log_end()}"
                )
            time.sleep(0.1)

    def running(self) -> bool:
        """Return whether the process runs or is frozen."""
        return self.process is not None and self.process.alive()

    def problem(self) -> str | None:
        """Return why the server is not ready now; None if it is ready."""
        if not self.running():
            return "it is not running"
        try:
            self.ask(ASK_SECONDS)
        except (OSError, NotReadyError) as error:
            return str(error) or type(error).__name__
        return None

    def kill(self) -> None:
        """Send SIGKILL; return when the process has ended."""
        self._started().kill()

    def freeze(self) -> None:
        """Send SIGSTOP: the server keeps its connections, but does not answer."""
        self._started().freeze()

    def thaw(self) -> None:
        """Send SIGCONT, after `freeze`."""
        self._started().send(signal.SIGCONT)

    def start_again(self, *, wait: bool = True) -> None:
        """Start a killed or stopped server again, with the same port and data.

        wait: wait until it is ready. Raises StackError if it still runs.
        """
        if self.running():
            raise StackError(f"{self.name} still runs as process {self.pid}: kill or stop it first")
        self.start()
        if wait:
            self.wait_ready()

    def stop(self, timeout: float = 60.0) -> None:
        """Stop the server and its helpers: SIGTERM, and SIGKILL after `timeout` seconds.

        With timeout 0, SIGKILL is sent immediately, which may lose data.
        """
        for process in (self.process, *self.helpers.values()):
            if process is not None:
                process.end(timeout)

    def memory_mb(self) -> float:
        """Return the resident memory of the server and its helpers, in MB."""
        everyone = (self.process, *self.helpers.values())
        return sum(process.memory_mb() for process in everyone if process is not None)

    def running_helpers(self) -> set[str]:
        """Return the names of the running helpers."""
        return {name for name, process in self.helpers.items() if process.alive()}

    def _run(self, command: Sequence[str]) -> Process:
        return processes.start(
            command, log=self.log, environment=self.environment(), tethered=self.tethered
        )

    def _started(self) -> Process:
        if self.process is None:
            raise StackError(f"{self.name} was never started")
        return self.process

    def _wait_listening(self, port: int) -> None:
        deadline = time.monotonic() + HELPER_SECONDS
        while problem_with(port) is None:
            if time.monotonic() >= deadline:
                raise StackError(
                    f"nothing listens on port {port} next to {self.name}{self._log_end()}"
                )
            time.sleep(0.01)

    def _log_end(self) -> str:
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            lines = []
        return "\n".join([f"; the end of {self.log}:", *lines[-LOG_LINES:]])


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
