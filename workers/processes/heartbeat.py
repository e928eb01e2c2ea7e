"""What a worker's parent does beside Celery: show life, and have the reconciler run."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Sequence
from typing import Any

import structlog

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
_EXIT_GRACE_SECONDS = 5.0


class Heartbeat:
    """A thread of the parent process; started once the worker takes tasks."""

    def __init__(
        self,
        settings: Settings,
        app: Any,
        worker: str,
        queues: Sequence[str],
        *,
        exit_with_parent: bool = False,
    ) -> None:
        """queues: that the worker takes tasks from; who takes maintenance has it sent, too.
        tethered: the worker is told to stop once the process that started it is gone."""
        self._settings = settings
        self._app = app
        self._worker = worker
        self._queues = tuple(queues)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._kill_timer: threading.Timer | None = None
        self._parent = os.getppid() if exit_with_parent else None

    def start(self) -> None:
        """Begin to beat."""
        self._thread = threading.Thread(target=self._run, name="skillbus-heart", daemon=True)
        self._thread.start()

    def on_shutting_down(self, how: str = "", **_: object) -> None:
        """Told to stop: what runs comes to an end first, but not for ever."""
        if how != "Warm" or self._kill_timer is not None:
            return
        seconds = self._settings.workers.stop_seconds
        log.info("worker ends", worker=self._worker, within=seconds)
        self._kill_timer = threading.Timer(seconds, self._kill_children_and_exit)
        self._kill_timer.daemon = True
        self._kill_timer.start()

    def _kill_children_and_exit(self) -> None:
        """End the children, whose messages go back to the broker, and then this process."""
        from billiard.process import active_children  # type: ignore[import-untyped]  # none

        log.warning("what has not ended is delivered again", worker=self._worker)
        for child in active_children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
        time.sleep(_EXIT_GRACE_SECONDS)
        os._exit(1)

    def stop(self) -> None:
        """End the thread; others take over at once what this worker leaves."""
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
                        log.info("servers are back")
                    servers_down = False
                except SkillbusError as error:
                    if not servers_down:
                        log.warning("a server cannot be used", reason=str(error))
                    servers_down = True
                if self._stopping.wait(_BEAT_SECONDS):
                    break
                if self._parent not in (None, os.getppid()):
                    # nobody would stop us any more; told twice, it would not stop softly
                    self._parent = None
                    os.kill(os.getpid(), signal.SIGTERM)
            with contextlib.suppress(SkillbusError):
                coordinator.deregister_worker()

    def _send_maintenance(self, coordinator: RedisCoordinator, at_once: bool) -> None:
        """Now and then, and soon where a task gave up or its process died."""
        due = coordinator.claim_if_due("maintain", self._settings.workers.reconcile_seconds)
        if (
            due
            or at_once
            or (coordinator.needs_reconcile and coordinator.claim_if_due("mend", _REPAIR_SECONDS))
        ):
            send_task_if_room(self._app, MAINTAIN.name, [])


def start_child_heartbeat(coordinator: RedisCoordinator) -> None:
    """Show life for this process as long as it lives, from a thread of its own.

    Raises TransientError where the first sign cannot be given.
    """
    coordinator.beat()

    def beat() -> None:
        while True:
            time.sleep(_BEAT_SECONDS)
            with contextlib.suppress(SkillbusError):  # the parent tells that a server is away
                coordinator.beat()

    threading.Thread(target=beat, name="skillbus-heart", daemon=True).start()
