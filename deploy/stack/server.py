"""A server of the stack: started, asked, frozen, killed and started again."""

from __future__ import annotations

import os
import secrets
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from deploy.stack import processes
from deploy.stack.asking import HOST, NotReadyError
from deploy.stack.errors import StackError
from deploy.stack.ports import problem_with
from deploy.stack.processes import Process

START_SECONDS = 180.0
"""Patience with a server that starts; Neo4j after a crash takes the longest."""

HELPER_SECONDS = 30.0
"""Patience with a program beside a server until it listens."""

ASK_SECONDS = 2.0
"""Patience with one question whether it is ready."""

LOG_LINES = 15
"""Lines of a log that a message quotes."""

STAMP = "stk_"
"""How every password begins, so that a search finds those that are where they should not be."""


@dataclass(frozen=True)
class Memory:
    """Memory that the Java servers may take, as `-Xmx` writes it."""

    elasticsearch_heap: str = "768m"
    neo4j_heap: str = "768m"
    neo4j_page_cache: str = "128m"


@dataclass(frozen=True)
class Place:
    """Where a server keeps its things, and on which ports of the loopback interface it listens."""

    data: Path
    log: Path
    ports: Mapping[str, int]
    """By what they are for; `main` is the one that clients use."""


class Server(ABC):
    """One server, on loopback, with data and a password of its own.

    It keeps port, data and password when it is started again. Subclasses say which program runs
    and how it is asked whether it works.
    """

    name: ClassVar[str]
    ports: ClassVar[tuple[str, ...]] = ("main",)
    has_password: ClassVar[bool] = True

    def __init__(self, place: Place, memory: Memory, *, tethered: bool) -> None:
        self.place = place
        self.memory = memory
        self.tethered = tethered
        self.process: Process | None = None
        self.helpers: dict[str, Process] = {}

    @property
    @abstractmethod
    def url(self) -> str:
        """The address as the settings want it: without the password."""

    @abstractmethod
    def prepare(self) -> None:
        """Find or fetch the programs and write the configuration; may be done again."""

    @abstractmethod
    def command(self) -> Sequence[str]:
        """The program and its arguments, once prepared; no password among them."""

    @abstractmethod
    def ask(self, timeout: float) -> None:
        """Ask the server whether it works; raises OSError or NotReadyError."""

    def environment(self) -> Mapping[str, str]:
        """Variables added to this process's."""
        return {}

    def helper_commands(self) -> Mapping[str, Sequence[str]]:
        """Programs that must listen before the server starts, each by the name of its port."""
        return {}

    @property
    def port(self) -> int:
        """The port that clients use."""
        return self.place.ports["main"]

    @property
    def log(self) -> Path:
        """The file that holds everything the server printed."""
        return self.place.log

    @property
    def password_file(self) -> Path | None:
        """The file whose only line is the password; None where the server has none."""
        return self.place.data / "password" if self.has_password else None

    @property
    def pid(self) -> int:
        """The id of the server's process. Raises StackError before the first start."""
        return self._started().pid

    @property
    def password(self) -> str:
        """The password, made at the first use; empty where the server has none."""
        path = self.password_file
        if path is None:
            return ""
        if not path.exists():
            write_private(path, f"{STAMP}{secrets.token_urlsafe(24)}\n")
        return path.read_text(encoding="utf-8").strip()

    def start(self) -> None:
        """Start the server and return at once; `wait_ready` waits.

        Raises UnavailableError where something must be installed, StackError where a port is
        taken.
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
        """Raises StackError where another program has a port of this server."""
        running = self.running_helpers()
        for use, port in self.place.ports.items():
            if use in running:  # it has its port rightly
                continue
            problem = problem_with(port)
            if problem is not None:
                raise StackError(
                    f"{self.name} cannot have port {port} on {HOST}: {problem};"
                    " stop what has it, or name another port"
                )

    def wait_ready(self, seconds: float = START_SECONDS) -> None:
        """Wait until the server works.

        Raises StackError when it ended or took longer, with the last lines of its log.
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
        """Whether its process is there, frozen or not."""
        return self.process is not None and self.process.alive()

    def problem(self) -> str | None:
        """Why the server does not work right now; None when it does."""
        if not self.running():
            return "it is not running"
        try:
            self.ask(ASK_SECONDS)
        except (OSError, NotReadyError) as error:
            return str(error) or type(error).__name__
        return None

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        self._started().kill()

    def freeze(self) -> None:
        """SIGSTOP: the server keeps its connections and answers nothing."""
        self._started().send(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT, after `freeze`."""
        self._started().send(signal.SIGCONT)

    def start_again(self, *, wait: bool = True) -> None:
        """Start anew on the same port and data what was killed or stopped; wait until it works.

        Raises StackError when it still runs.
        """
        if self.running():
            raise StackError(f"{self.name} still runs as process {self.pid}: kill or stop it first")
        self.start()
        if wait:
            self.wait_ready()

    def stop(self, patience: float = 60.0) -> None:
        """End the server and what runs beside it: SIGTERM and, after so many seconds, SIGKILL.

        Without patience it is SIGKILL at once, for data that nobody will read.
        """
        for process in (self.process, *self.helpers.values()):
            if process is not None:
                process.end(patience)

    def memory_mb(self) -> float:
        """Memory that the server and its helpers hold now."""
        everyone = (self.process, *self.helpers.values())
        return sum(process.memory_mb() for process in everyone if process is not None)

    def running_helpers(self) -> set[str]:
        """Names of the helpers that run."""
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
                    f"nothing listens on port {port} beside {self.name}{self._log_end()}"
                )
            time.sleep(0.01)

    def _log_end(self) -> str:
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            lines = []
        return "\n".join([f"; the end of {self.log}:", *lines[-LOG_LINES:]])


def write_private(path: Path, text: str) -> None:
    """Write a file that only this user can read."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
