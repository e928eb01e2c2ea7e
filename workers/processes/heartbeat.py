"""Heartbeats of a worker and its child processes; also schedules the reconciler."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Sequence
from typing import Any

import structlog
from billiard.process import active_children
from kombu.asynchronous.hub import get_event_loop

from config.errors import SkillbusError
from config.settings import Settings
from tasks.coordination.redis import RedisCoordinator
from tasks.coordination.redis_workers import ALIVE_SECONDS
from tasks.policies import MAINTAIN, MAINTAIN_QUEUE
from tasks.send import queue_depth, send_task_if_room
from workers.backend.stores import open_coordinator

log = structlog.get_logger()

_BEAT_SECONDS = ALIVE_SECONDS / 4
_REPAIR_SECONDS = 3.0
"""Minimum interval of the reconciler runs that follow a failed task or a dead process."""

_EXIT_GRACE_SECONDS = 5.0


class Heartbeat:
    """Heartbeat of a worker: a thread of its parent process, started once the worker is ready.

    It also sends maintenance tasks.
    """

    def __init__(self, settings: Settings, app: Any, worker: str, queues: Sequence[str]) -> None:
        """Prepare a heartbeat.

        queues: queues that the worker consumes; maintenance is sent only from a worker
        that consumes its queue.
        """
        self._settings = settings
        self._app = app
        self._worker = worker
        self._queues = tuple(queues)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._kill_timer: threading.Timer | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="skillbus-heartbeat", daemon=True)
        self._thread.start()

    def on_shutting_down(self, how: str = "", **_: object) -> None:
        """Begin the shutdown now, and limit a warm one to `workers.stop_seconds`; a receiver of
        `worker_shutting_down`."""
        # From another thread: the loop does not wake itself.
        threading.Thread(target=_wake_event_loop, daemon=True).start()
        if how != "Warm" or self._kill_timer is not None:
            return
        seconds = self._settings.workers.stop_seconds
        log.info("worker stopping", worker=self._worker, timeout_seconds=seconds)
        self._kill_timer = threading.Timer(seconds, self._kill_children_and_exit)
        self._kill_timer.daemon = True
        self._kill_timer.start()

    def _kill_children_and_exit(self) -> None:
        """Kill the children, whose messages return to the broker, and then this process."""
        log.warning("unfinished tasks will be redelivered", worker=self._worker)
        for child in active_children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
        time.sleep(_EXIT_GRACE_SECONDS)
        os._exit(1)

    def stop(self) -> None:
        """Stop the thread and deregister the worker, so that other workers take
        over its tasks at once."""
        self._stopping.set()
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        with contextlib.ExitStack() as stack:
            coordinator = open_coordinator(
                self._settings, stack, lambda queue: queue_depth(self._app, queue), self._worker
            )
            servers_down = False
            while True:
                try:
                    coordinator.beat(self._queues)
                    if MAINTAIN_QUEUE in self._queues:
                        self._send_maintenance(coordinator, at_once=servers_down)
                    if servers_down:
                        log.info("servers reachable again")
                    servers_down = False
                except SkillbusError as error:
                    if not servers_down:
                        log.warning("server unavailable", reason=str(error))
                    servers_down = True
                if self._stopping.wait(_BEAT_SECONDS):
                    break
            with contextlib.suppress(SkillbusError):
                coordinator.deregister_worker()

    def _send_maintenance(self, coordinator: RedisCoordinator, at_once: bool) -> None:
        """Send the reconciler task if it is due, or early after a failed task or a dead process."""
        due = coordinator.claim_if_due("maintain", self._settings.workers.reconcile_seconds)
        if (
            due
            or at_once
            or (coordinator.needs_reconcile and coordinator.claim_if_due("mend", _REPAIR_SECONDS))
        ):
            send_task_if_room(self._app, MAINTAIN.name, [])


def _wake_event_loop() -> None:
    """End the wait of the worker's loop for messages, which lasts up to 5 s on RabbitMQ."""
    loop = get_event_loop()
    if loop is not None:
        loop.call_soon(lambda: None)


def start_child_heartbeat(coordinator: RedisCoordinator) -> None:
    """Send heartbeats of this process from a thread until it exits.

    Raises TransientError if the first heartbeat fails.
    """
    coordinator.beat()

    def beat() -> None:
        while True:
            time.sleep(_BEAT_SECONDS)
            with contextlib.suppress(SkillbusError):  # the parent logs the error
                coordinator.beat()

    threading.Thread(target=beat, name="skillbus-heartbeat", daemon=True).start()
