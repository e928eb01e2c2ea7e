"""Runs all workloads on one machine, each in a worker process that is restarted if it dies."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from config.backoff import Backoff
from config.errors import UsageError
from config.settings import WorkerSettings
from workers.processes.current_process import stop_on_signals
from workers.processes.interpreter import child_environment, skillbus_command
from workers.processes.workloads import WORKLOADS, Workload

log = structlog.get_logger()

_LAST_PORT = 65_535
_TICK_SECONDS = 0.2
_RESTART_DELAY_SECONDS = 0.5, 30.0
_STABLE_SECONDS = 60.0
_EXIT_SECONDS = 25.0
"""Seconds that a stopping worker may take beyond `workers.stop_seconds`."""


@dataclass(slots=True)
class _WorkerProcess:
    """The worker process of one workload."""

    workload: Workload
    metrics_port: int
    running: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    backoff: Backoff = field(default_factory=lambda: Backoff(*_RESTART_DELAY_SECONDS))
    restart_at: float = field(default_factory=time.monotonic)


def run_supervisor(settings: WorkerSettings, arguments: Sequence[str], processes: int) -> int:
    """Run every workload until SIGINT or SIGTERM, and return the exit code.

    arguments: options of `skillbus` before the subcommand. processes: children of each worker. The
    metrics port is that of the first worker, counted up for the others. Raises UsageError if the
    ports exceed 65535.
    """
    metrics_port = settings.metrics_port
    if metrics_port > _LAST_PORT - len(WORKLOADS) + 1:
        raise UsageError(
            f"workers.metrics_port: {metrics_port} is too high: {len(WORKLOADS)} consecutive ports "
            "are needed"
        )
    workers = [
        _WorkerProcess(workload, metrics_port + number if metrics_port else 0)
        for number, workload in enumerate(WORKLOADS)
    ]
    with stop_on_signals() as stop_requested:
        try:
            while not stop_requested.is_set():
                for worker in workers:
                    _ensure_running(worker, arguments, processes)
                stop_requested.wait(_TICK_SECONDS)
        finally:
            _stop(workers, settings.stop_seconds + _EXIT_SECONDS)
    return 0


def _ensure_running(worker: _WorkerProcess, arguments: Sequence[str], processes: int) -> None:
    now = time.monotonic()
    if worker.running is not None:
        code = worker.running.poll()
        if code is None:
            return
        if now - worker.started > _STABLE_SECONDS:
            worker.backoff.reset()
        pause = worker.backoff.pause()
        log.error(
            "worker died",
            workload=worker.workload.name,
            code=code,
            retry_seconds=round(pause, 1),
        )
        worker.running, worker.restart_at = None, now + pause
    if now >= worker.restart_at:
        queues = ",".join(worker.workload.short_names)
        options = ["--queues", queues, "--processes", str(processes)]
        options += ["--supervisor", str(os.getpid())]
        # In a process group of its own, so that Ctrl-C reaches the supervisor only.
        worker.running = subprocess.Popen(  # noqa: S603 - our own program
            skillbus_command([*arguments, "worker", *options]),
            process_group=0,
            env=child_environment({"SKILLBUS_WORKERS__METRICS_PORT": str(worker.metrics_port)}),
        )
        worker.started = now


def _stop(workers: Sequence[_WorkerProcess], seconds: float) -> None:
    """Stop all workers, and kill those that still run after this time."""
    running = [worker.running for worker in workers if worker.running is not None]
    for process in running:
        process.terminate()
    end = time.monotonic() + seconds
    for process in running:
        try:
            process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
