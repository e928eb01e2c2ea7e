"""Celery workers in threads of this process, for an embedded deployment."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tasks.policies import POLICIES
from workers.processes.embedded_consumer import ThreadedConsumer
from workers.processes.workloads import Workload

STOP_SECONDS = 20.0
"""Time limit for the end of a worker."""


@dataclass(slots=True)
class WorkerThread:
    """A Celery worker in a thread. ready: set once it takes tasks."""

    controller: Any
    thread: threading.Thread
    ready: threading.Event

    def stop(self) -> None:
        """Stop taking tasks and end soon.

        It first waits until the worker has started: Celery closes the connection of a worker at
        once, even while the worker is starting.
        """
        end = time.monotonic() + STOP_SECONDS
        while self.thread.is_alive() and not self.ready.wait(0.01) and time.monotonic() < end:
            pass
        self.controller.stop()


def start_worker(app: Any, workload: Workload, threads: int) -> WorkerThread:
    """Start a worker for the tasks of a workload, with a pool of threads."""
    ready = threading.Event()
    controller = app.WorkController(
        pool="threads",
        concurrency=threads,
        hostname=f"{workload.name}@skillbus",
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        quiet=True,
        consumer_cls=partial(ThreadedConsumer, queues=workload.queues),
        ready_callback=lambda _: ready.set(),
    )
    thread = threading.Thread(
        target=controller.start, name=f"skillbus-{workload.name}", daemon=True
    )
    thread.start()
    return WorkerThread(controller, thread, ready)


def describe_workers(
    workloads: Iterable[tuple[Workload, int]], running: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return workers as JSON data: the queues and the running tasks of each.

    workloads: with their numbers of threads. running: tasks of the process.
    """
    now = time.time()
    return [
        {
            "worker": f"{workload.name} ({threads} {'thread' if threads == 1 else 'threads'})",
            "queues": list(workload.queues),
            "running": [
                {
                    "task": one["task"],
                    "ids": one["ids"],
                    "seconds": round(max(0.0, now - one["since"]), 1),
                    "trace_id": one["trace_id"],
                }
                for one in running
                if POLICIES[one["task"]].queue in workload.queues
            ],
        }
        for workload, threads in workloads
    ]
