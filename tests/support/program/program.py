"""The program as tests start it: forked from a preloaded process, or from nothing."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 180.0
"""Upper bound of a wait for a command; below the time limit of a test, which reports no output."""
START_SECONDS = 280.0
"""The same for the process that loads everything."""
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For HTTP clients of servers without TLS: each would load the certificates of all authorities."""


@dataclass(frozen=True)
class Result:
    """What a finished command left."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)


class Process:
    """A command that runs."""

    def __init__(self, pid: int, output: Path) -> None:
        self.pid = pid
        self.output = output
        self.code: int | None = None
        self.ended = threading.Event()

    def send(self, number: int) -> None:
        """Send a signal; one that comes too late is no error."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> Result:
        """End it as a power cut would."""
        self.send(signal.SIGKILL)
        return self.wait()

    def wait(self, seconds: float = SECONDS) -> Result:
        """Its result; a command that hangs is killed and fails the test."""
        if not self.ended.wait(seconds):
            self.send(signal.SIGKILL)
            raise AssertionError(f"still running after {seconds} s: {self.text('err')}")
        assert self.code is not None
        return Result(self.code, self.text("out"), self.text("err"))

    def text(self, name: str) -> str:
        """What it has written so far to `out` or `err`."""
        path = self.output.with_name(f"{self.output.name}.{name}")
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


class ForkServer:
    """The preloaded process and its children.

    folder: for what they write. vectors: the file of vectors that all processes of the run share.
    """

    def __init__(self, folder: Path, vectors: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()
        self._started: queue.Queue[int] = queue.Queue()
        self._running: dict[int, Process] = {}
        self._early: dict[int, int] = {}
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._socket = folder / "forkserver.sock"
        program = Path(__file__).with_name("forkserver.py")
        self._errors = folder / "forkserver.err"
        with self._errors.open("wb") as stderr:
            self._server = subprocess.Popen(
                [sys.executable, str(program), str(self._socket), str(vectors)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=ROOT,
                env={**clean_environment(), "PYTHONPATH": str(ROOT)},
            )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        if self._started.get(timeout=START_SECONDS) < 0:
            raise RuntimeError(f"the fork server ended: {self._errors.read_text()}")

    @property
    def pid(self) -> int:
        """Its process id, which is that of the parent of all commands."""
        return self._server.pid

    def _listen(self) -> None:
        assert self._server.stdout is not None
        for line in self._server.stdout:
            answer = json.loads(line)
            if "started" in answer:
                self._started.put(answer["started"])
                continue
            with self._lock:
                process = self._running.pop(answer["ended"], None)
                if process is None:
                    self._early[answer["ended"]] = answer["code"]
                    continue
            process.code = answer["code"]
            process.ended.set()
        self._started.put(-1)

    def start(
        self, *args: str, env: Mapping[str, str], cwd: Path | None = None, stdin: str | None = None
    ) -> Process:
        """Start a command."""
        number = next(self._numbers)
        words = "-".join(itertools.takewhile(str.isalpha, args[:2]))
        output = self._folder / f"command-{number}-{words}"
        source = "/dev/null"
        if stdin is not None:
            source = str(output.with_suffix(".in"))
            Path(source).write_text(stdin, encoding="utf-8", errors="surrogateescape")
        job = {
            "args": list(args),
            "env": dict(env),
            "cwd": str(cwd or self._folder),
            "stdin": source,
            "output": str(output),
        }
        assert self._server.stdin is not None
        with self._asking:
            self._server.stdin.write((json.dumps(job) + "\n").encode())
            self._server.stdin.flush()
            pid = self._started.get(timeout=SECONDS)
        if pid < 0:  # as a process id it would stand for all processes
            raise RuntimeError(f"the fork server ended: {self._errors.read_text()}")
        process = Process(pid, output)
        with self._lock:
            self._running[process.pid] = process
            code = self._early.pop(process.pid, None)
        if code is not None:
            process.code = code
            process.ended.set()
        return process

    def write_program(self, folder: Path) -> None:
        """Write a program `skillbus` into a folder, for shells: it runs in a fork."""
        command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("forked_command.py"))]
        program = folder / "skillbus"
        program.write_text(f'#!/bin/sh\nexec {shlex.join([*command, str(self._socket)])} "$@"\n')
        program.chmod(0o755)

    def close(self) -> None:
        """End the server and what still runs."""
        with self._lock:
            running = list(self._running.values())
        for process in running:
            process.kill()
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait(SECONDS)
        self._listener.join(SECONDS)
        assert self._server.stdout is not None
        self._server.stdout.close()


class Skillbus:
    """The command line on one home."""

    def __init__(self, server: ForkServer, home: Path, **env: str) -> None:
        self.server = server
        self.home = home
        self.env = {"SKILLBUS_HOME": str(home), **env}

    def start(self, *args: str, **options: Any) -> Process:
        """Start a command."""
        return self.server.start(*args, env=self.env, **options)

    def __call__(self, *args: str, code: int = 0, **options: Any) -> Result:
        """Run a command that is to end with this exit code."""
        result = self.start(*args, **options).wait()
        assert result.code == code, f"exit {result.code}\n{result.out}\n{result.err}"
        return result

    def with_environment(self, **env: str) -> Skillbus:
        """The same home with further variables."""
        return Skillbus(self.server, self.home, **{**self.env, **env})

    def copy(self, home: Path, **env: str) -> Skillbus:
        """The same library in another home."""
        shutil.copytree(self.home, home)
        return Skillbus(self.server, home, **env)

    def skills(self) -> dict[str, dict[str, Any]]:
        """`skills list --json` by skill id, without those removed."""
        listed = self("skills", "list", "--json").data
        return {row["skill_id"]: row for row in listed if row["state"] != "removed"}

    def chosen(self, task: str, *args: str) -> list[str]:
        """Skill ids of the bundle for a task."""
        result = self.start("query", task, "--format", "json", *args).wait()
        assert result.code in (0, 3), result.err
        return [skill["skill_id"] for skill in result.data["skills"]]

    @contextlib.contextmanager
    def serving(self, *args: str) -> Iterator[Process]:
        """`serve`, up and answering; stopped with SIGTERM at the end."""
        process = self.start("serve", *args)
        try:
            wait_for(lambda: answers(self.home / "serve.sock") or process.ended.is_set(), SECONDS)
            yield process
        finally:
            process.send(signal.SIGTERM)
            process.wait()

    def client(self) -> httpx.Client:
        """An HTTP client on the home's socket."""
        transport = httpx.HTTPTransport(uds=str(self.home / "serve.sock"), verify=NO_TLS)
        return httpx.Client(transport=transport, base_url="http://skillbus", timeout=60)


def answers(path: Path) -> bool:
    """Whether somebody listens on a socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def wait_for(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """The first true value of a condition; fails the test when none comes in time."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"nothing after {seconds} s"
        time.sleep(0.05)
    return value


def clean_environment() -> dict[str, str]:
    """The environment without settings of ours."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SKILLBUS_")}


def run_installed(*args: str, home: Path, seconds: float = SECONDS) -> Result:
    """The installed console script in a process of its own."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("skillbus")), *args],
        env={**clean_environment(), "SKILLBUS_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    sys.stderr.write(done.stderr)  # into the log of this test
    return Result(done.returncode, done.stdout, done.stderr)
