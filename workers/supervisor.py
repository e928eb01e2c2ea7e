"""All workloads on one machine: a worker process for each, started anew when it dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from workers.workloads import WORKLOADS, Workload

log = structlog.get_logger()

_PREFIX = "skillbus."
_TICK_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 30.0
_STEADY_SECONDS = 60.0
_STOP_SECONDS = 45.0


@dataclass(slots=True)
class _Process:
    """One workload's worker; pause: seconds before it is started again."""

    workload: Workload
    running: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    pause: float = 0.5
    due: float = field(default_factory=time.monotonic)


def supervise(arguments: Sequence[str], processes: int) -> int:
    """Run every workload until SIGINT or SIGTERM; returns the exit code.

    arguments: of `skillbus`, before `worker`. Each process takes `processes` children.
    """
    told = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: told.set())
    workers = [_Process(workload) for workload in WORKLOADS]
    try:
        while not told.is_set():
            for worker in workers:
                _look_after(worker, arguments, processes)
            told.wait(_TICK_SECONDS)
    finally:
        _stop(workers)
    return 0


def _look_after(worker: _Process, arguments: Sequence[str], processes: int) -> None:
    now = time.monotonic()
    if worker.running is not None:
        code = worker.running.poll()
        if code is None:
            return
        if now - worker.started > _STEADY_SECONDS:
            worker.pause = 0.5
        log.error("worker died", workload=worker.workload.name, code=code, again_in=worker.pause)
        worker.running, worker.due = None, now + worker.pause
        worker.pause = min(2 * worker.pause, _LONGEST_PAUSE_SECONDS)
    if now >= worker.due:
        queues = ",".join(queue.removeprefix(_PREFIX) for queue in worker.workload.queues)
        command = [sys.executable, "-m", "workers.cli", *arguments, "worker", "--queues", queues]
        command += ["--processes", str(processes)]
        # A group of its own: Ctrl-C reaches the supervisor alone, which stops them in order.
        worker.running = subprocess.Popen(command, process_group=0, env=dict(os.environ))  # noqa: S603 - our own program
        worker.started = now


def _stop(workers: Sequence[_Process]) -> None:
    running = [worker.running for worker in workers if worker.running is not None]
    for process in running:
        process.terminate()
    end = time.monotonic() + _STOP_SECONDS
    for process in running:
        try:
            process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
