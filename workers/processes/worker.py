"""A worker process on a broker: one workload, run in child processes.

The parent talks to the broker and sends heartbeats. Stores and models are opened in the children,
after the fork: children of a parent that has used torch with threads hang.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import structlog
from celery import bootsteps, signals
from celery.exceptions import CPendingDeprecationWarning, SecurityWarning
from celery.worker import state

from config.backoff import Backoff
from config.errors import MisconfiguredError, SkillbusError
from config.settings import Settings
from tasks.broker.broker_config import BrokerConfig, server_broker_config
from tasks.celery_app import create_app
from tasks.coordination.redis_workers import make_child_id
from tasks.ingest.maintain import advance_sequence
from tasks.ingest.preparation.role_classifier import load_role_classifier
from tasks.journal.protocol import Journal
from tasks.policies import QUERY_QUEUE
from tasks.send import queue_depth, send_task_if_room
from tasks.services import Lazy, Services
from workers.backend.stores import open_coordinator, open_journal, open_services
from workers.monitoring.metrics_server import WorkerMetrics
from workers.processes.broker_consumer import DeadLetterConsumer
from workers.processes.current_process import (
    detach_inherited_sockets,
    stop_with_parent,
    unique_process_name,
)
from workers.processes.heartbeat import Heartbeat, start_child_heartbeat
from workers.processes.version_check import (
    RETRY_SECONDS,
    find_other_version,
    wait_for_own_version,
)
from workers.processes.warm_up import warm_up
from workers.processes.workloads import ALL_QUEUES, Workload, add_former_queues
from workers.tracing.start import check_tracing, start_tracing

log = structlog.get_logger()

_WARM_UP_RETRY_SECONDS = 1.0, 15.0
_SETUP_RETRY_SECONDS = 10.0


def run_worker(
    settings: Settings,
    workload: Workload,
    processes: int,
    notify: Callable[[str], None],
    *,
    supervisor: int | None = None,
) -> int:
    """Run a worker until SIGTERM, and return the exit code.

    notify: called with a line of text when the worker is ready. supervisor: id of the parent
    process, with which the worker ends. SIGTERM lets running tasks finish within
    `workers.stop_seconds`; unfinished tasks are redelivered.
    """
    # Loaded to reject an invalid file at start, not by the first ingest.
    load_role_classifier(settings.roles.weights)
    check_tracing(settings.tracing)
    name = unique_process_name()
    transport = server_broker_config(settings.servers)
    worker_metrics = WorkerMetrics(settings)
    child = _ChildProcess(settings, workload, transport, name, worker_metrics)
    app = create_app(child.services.get, add_former_queues(workload.queues), transport)
    worker_metrics.bind(app)

    def start_after_pool() -> None:
        if supervisor is not None:
            stop_with_parent(supervisor)
        worker_metrics.start()
        if QUERY_QUEUE in workload.queues:
            wait_for_own_version(settings, _is_stopping)

    app.steps["worker"].add(_start_after_pool(start_after_pool))
    heartbeat = Heartbeat(settings, app, name, workload.queues)
    DeadLetterConsumer.journal = _lazy_journal(settings)
    DeadLetterConsumer.max_message_bytes = settings.workers.message_bytes
    DeadLetterConsumer.metrics = worker_metrics.recorder
    ready = f"worker ready, consuming {', '.join(workload.queues)}"
    _connect_signals(child, heartbeat, lambda: notify(ready))
    _ignore_celery_warnings()
    worker = app.Worker(
        hostname=f"{workload.name}@{name}",
        pool="prefork",
        concurrency=processes,
        optimization="fair",
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        quiet=True,
        consumer_cls=DeadLetterConsumer,
    )
    log.info("worker starting", queues=workload.queues, processes=processes, worker=name)
    try:
        worker.start()
    finally:
        heartbeat.stop()
        worker_metrics.close()
    return int(worker.exitcode or 0)


def _connect_signals(child: _ChildProcess, heartbeat: Heartbeat, ready: Callable[[], None]) -> None:
    """Connect to the signals of Celery's worker."""

    def keep_logging(**_: object) -> None:
        """Do nothing: Celery does not set up logging when this signal has a receiver."""

    def begin(**_: object) -> None:
        heartbeat.start()
        ready()

    signals.setup_logging.connect(keep_logging, weak=False)
    signals.worker_process_init.connect(child.on_child_start, weak=False)
    signals.worker_process_shutdown.connect(child.on_child_stop, weak=False)
    signals.worker_ready.connect(begin, weak=False)
    signals.worker_shutting_down.connect(heartbeat.on_shutting_down, weak=False)


def _ignore_celery_warnings() -> None:
    """Ignore warnings about pickle, which is not accepted, and about tasks that go on when the
    broker is lost."""
    for category in (SecurityWarning, CPendingDeprecationWarning):
        warnings.simplefilter("ignore", category)


def _start_after_pool(begin: Callable[[], None]) -> Any:
    """Return a step of Celery's worker that calls `begin` once its children are forked.

    No thread is started before the fork, and none waits for the broker. The worker takes
    tasks once `begin` returns.
    """

    class AfterThePool(bootsteps.StartStopStep):  # type: ignore[misc]  # no annotations
        requires: ClassVar = {"celery.worker.components:Pool"}

        def start(self, parent: Any) -> None:
            del parent
            begin()

    return AfterThePool


def _is_stopping() -> bool:
    return state.should_stop is not None or state.should_terminate is not None


def _lazy_journal(settings: Settings) -> Callable[[], Journal]:
    stack = contextlib.ExitStack()
    return Lazy(lambda: open_journal(settings, stack, writable=True)).get


class _ChildProcess:
    """Sets up a child process of the worker, and opens the services of its tasks."""

    def __init__(
        self,
        settings: Settings,
        workload: Workload,
        transport: BrokerConfig,
        name: str,
        worker_metrics: WorkerMetrics,
    ) -> None:
        self._settings = settings
        self._workload = workload
        self._transport = transport
        self._name = name
        self._worker_metrics = worker_metrics
        self._stop_tracing: Callable[[], None] = lambda: None
        self._setup_error: tuple[float, MisconfiguredError | None] = (0.0, None)
        self.services = Lazy(self._open)

    def on_child_start(self, **_: object) -> None:
        """Lower the priority of bulk work, and warm up in a thread: Celery waits only seconds."""
        self._worker_metrics.after_fork()
        detach_inherited_sockets()
        self._stop_tracing = start_tracing(self._settings.tracing, self._worker_metrics.recorder)
        if self._workload.bulk:
            os.nice(self._settings.workers.niceness)
        threading.Thread(target=self._warm_up, name="skillbus-warm-up", daemon=True).start()

    def on_child_stop(self, **_: object) -> None:
        """Export the last spans."""
        self._stop_tracing()

    def _warm_up(self) -> None:
        """Load models and stores, retrying until it succeeds; tasks fail and are retried too."""
        if QUERY_QUEUE in self._workload.queues:
            # Nothing is opened earlier: its error would be kept, and fail the first query.
            while find_other_version(self._settings):
                time.sleep(RETRY_SECONDS)
        backoff = Backoff(*_WARM_UP_RETRY_SECONDS)
        while True:
            try:
                warm_up(self.services.get(), self._workload.queues)
                break
            except SkillbusError as error:
                pause = backoff.pause()
                log.warning(
                    "warm-up failed, retrying", reason=str(error), retry_seconds=round(pause, 1)
                )
                time.sleep(pause)
        self._worker_metrics.mark_child_ready()

    def _open(self) -> Services:
        settings = self._settings
        until, setup_error = self._setup_error
        if setup_error is not None and time.monotonic() < until:
            raise setup_error
        # A new application: connections of the parent must not be shared.
        app = create_app(self.services.get, ALL_QUEUES, self._transport)
        with contextlib.ExitStack() as stack:
            try:
                services = self._open_services(settings, stack, app)
            except MisconfiguredError as error:
                # Frequent logins with a wrong password would lock the account.
                self._setup_error = (time.monotonic() + _SETUP_RETRY_SECONDS, error)
                raise
            stack.pop_all()  # open for as long as the child lives
        return services

    def _open_services(self, settings: Settings, stack: contextlib.ExitStack, app: Any) -> Services:
        child_id = make_child_id(self._name, os.getpid())
        coordinator = open_coordinator(
            settings, stack, lambda queue: queue_depth(app, queue), child_id
        )
        services = open_services(
            settings,
            stack,
            lambda task, ids: send_task_if_room(app, task, ids),
            writable=True,
            coordinator=coordinator,
            metrics=self._worker_metrics.recorder,
        )
        advance_sequence(services)
        start_child_heartbeat(coordinator)
        return services
