"""Processes of servers: started, recognised later, stopped. Linux only (`/proc`)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

TETHER = Path(__file__).with_name("tether.py")

# Linux sends a tethered process its signal when the thread that forked it ends, not the process:
# so one thread forks them all, and it lives as long as the process.
_forking = ThreadPoolExecutor(max_workers=1, thread_name_prefix="stack")


@dataclass(frozen=True)
class Process:
    """A process, recognised by its id and the moment it started, for ids are used again."""

    pid: int
    started: int
    """Clock ticks since the machine's start."""
    _child: subprocess.Popen[bytes] | None = field(default=None, compare=False, repr=False)

    def alive(self) -> bool:
        """Whether it runs, or could run on: a frozen one is alive, one that nobody reaped not."""
        if self._child is not None:
            return self._child.poll() is None
        return _started(self.pid) == self.started

    def send(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens where the process is gone."""
        if self.alive():
            os.kill(self.pid, number)

    def end(self, patience: float) -> None:
        """SIGTERM, then SIGKILL after so many seconds; returns when the process is gone."""
        if patience > 0:
            self.send(signal.SIGTERM)
            self.send(signal.SIGCONT)
        if patience <= 0 or not self._gone_within(patience):
            self.kill()

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        self.send(signal.SIGKILL)
        self._gone_within(10.0)

    def memory_mb(self) -> float:
        """Memory that it holds now (resident set), 0 when it is gone."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        except OSError:
            return 0.0
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def _gone_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.alive() and time.monotonic() < deadline:
            time.sleep(0.02)
        return not self.alive()


def start(
    command: Sequence[str], *, log: Path, environment: Mapping[str, str], tethered: bool
) -> Process:
    """Start a program in a session of its own, its output appended to `log`.

    `environment` is added to this process's. A tethered program is killed when this process ends,
    however it ends; any other outlives it.
    """
    if tethered:
        command = [sys.executable, "-I", "-S", str(TETHER), str(os.getpid()), *command]
    child = _forking.submit(_fork, list(command), log, {**os.environ, **environment}).result()
    started = _started(child.pid)
    return Process(child.pid, -1 if started is None else started, child)


def _fork(command: list[str], log: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )


def _started(pid: int) -> int | None:
    """When a process started; None if there is none, or one that only waits to be reaped."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name, in parentheses, may hold anything; state and the rest follow its end.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])
