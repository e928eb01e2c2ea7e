"""Starts, identifies and stops processes of servers. Linux only (`/proc`)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

TETHER = Path(__file__).with_name("tether.py")

# Linux sends the signal to a tethered process when the thread that forked it ends, not when the
# process ends. So a single thread, which lives as long as this process, forks all of them.
_forking = ThreadPoolExecutor(max_workers=1, thread_name_prefix="stack")


@dataclass(frozen=True)
class Process:
    """A process, identified by its id and start time, since ids are reused."""

    pid: int
    started: int
    """Start time in clock ticks since boot."""
    _child: subprocess.Popen[bytes] | None = field(default=None, compare=False, repr=False)

    def alive(self) -> bool:
        """Return whether the process runs or is frozen; a zombie is not alive."""
        if self._child is not None:
            return self._child.poll() is None
        return _started(self.pid) == self.started

    def send(self, number: signal.Signals) -> None:
        """Send a signal; does nothing if the process has ended."""
        if self.alive():
            os.kill(self.pid, number)

    def end(self, timeout: float) -> None:
        """Send SIGTERM, and SIGKILL after `timeout` seconds; return when the process has ended."""
        if timeout > 0:
            self.send(signal.SIGTERM)
            self.send(signal.SIGCONT)
        if timeout <= 0 or not self._gone_within(timeout):
            self.kill()

    def freeze(self) -> None:
        """Send SIGSTOP; return when all threads have stopped, since some may still answer for a
        moment. Raises TimeoutError if they do not stop."""
        self.send(signal.SIGSTOP)
        deadline = time.monotonic() + 10.0
        while self.alive() and not _is_stopped(self.pid):
            if time.monotonic() >= deadline:
                raise TimeoutError(f"process {self.pid} did not stop within 10 s")
            time.sleep(0.005)

    def kill(self) -> None:
        """Send SIGKILL; return when the process has ended."""
        self.send(signal.SIGKILL)
        self._gone_within(10.0)

    def memory_mb(self) -> float:
        """Return the resident memory in MB, 0 if the process has ended."""
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
    """Start a program in a new session, with its output appended to `log`.

    environment: variables in addition to those of this process. tethered: the program is killed
    when this process ends; otherwise it keeps running.
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
    """Return the start time of a process; None if it does not exist or is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name, in parentheses, may contain any characters; the other fields follow it.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def _is_stopped(pid: int) -> bool:
    """Return whether all threads of a process are stopped by a signal."""
    states = []
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):  # a thread that ended meanwhile
            states.append(path.read_text().rpartition(")")[2].split()[0])
    return all(state in "TZX" for state in states)
