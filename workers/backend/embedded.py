"""The embedded deployment: stores, models and workers of one process, built from settings."""

from __future__ import annotations

import contextlib
import gc
import logging
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import structlog

from config.settings import Settings
from search.protocol import Encoder, SearchIndex
from tasks.broker.broker_config import memory_broker_config
from tasks.celery_app import create_app
from tasks.ingest.maintain import maintain, repair_catalog, resend_open_work
from tasks.ingest.role_classifier import load_role_classifier
from tasks.metrics_recorder import MetricsRecorder
from tasks.policies import MAINTAIN, Deadline
from tasks.send import queue_depth, send_task
from tasks.services import Services
from workers.backend.base import Backend
from workers.backend.home import create_home
from workers.backend.stores import open_services, require_library
from workers.backend.writer_lock import WriterLock
from workers.monitoring.status import home_status, oldest_change_age_seconds
from workers.processes.embedded_consumer import ThreadedConsumer
from workers.processes.warm_up import warm_up
from workers.processes.workloads import ALL_QUEUES, WORKLOADS, Workload

log = structlog.get_logger()

_STOP_SECONDS = 20.0
_SWITCH_SECONDS = 0.0005


@dataclass(slots=True)
class _Worker:
    controller: Any
    thread: threading.Thread


class EmbeddedBackend(Backend):
    """Everything of one embedded process.

    A writing runtime holds the home's writer lock; a reading one answers queries beside it and
    keeps its journal in memory. Use it as a context manager. `encoder` takes the place of the one
    that the settings name; without `paging` sections wait for a later process. A process has one
    runtime at a time: the broker's memory is shared.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        writable: bool,
        encoder: Encoder | None = None,
        embed_sections: bool = True,
        measures: MetricsRecorder | None = None,
    ) -> None:
        self.settings = settings
        self._measures = measures
        self._embed_sections = embed_sections
        self._encoder = encoder
        self.writable = writable
        self._stack = contextlib.ExitStack()
        self._workers: list[_Worker] = []
        self._reconciler: threading.Thread | None = None
        with contextlib.ExitStack() as opening:
            self.services = self._open(opening)
            self._stack = opening.pop_all()
        self.graph, self.journal = self.services.graph, self.services.journal
        self.coordinator, self.stopping = self.services.coordinator, self.services.stopping
        self.app = create_app(lambda: self.services, ALL_QUEUES, memory_broker_config())
        # Celery runs tasks on threads through the default application, whichever received them.
        self.app.set_default()

    def _open(self, stack: contextlib.ExitStack) -> Services:
        settings, home = self.settings, self.settings.home
        if self.writable:
            # a wrong file is refused now, not when the first skill comes in
            load_role_classifier(settings.roles.weights)
            create_home(home)
            lock = WriterLock(home)
            lock.acquire()
            stack.callback(lock.release)
        else:
            require_library(home)
        return open_services(
            settings,
            stack,
            lambda name, ids: send_task(self.app, name, ids),
            writable=self.writable,
            encoder=self._encoder,
            measures=self._measures,
        )

    # -- workers
    def start(self) -> None:
        """Start worker threads; what the journal and the catalog hold unfinished is sent again."""
        logging.getLogger("kombu").setLevel(logging.ERROR)
        # Threads that answer queries should get the interpreter back soon from those that index.
        sys.setswitchinterval(_SWITCH_SECONDS)
        self._purge()
        for workload in self._workloads():
            self._workers.append(self._start_worker(*workload))
        if self.writable:
            repair_catalog(self.services)
            report = resend_open_work(self.services)
            log.info("resumed", **report)
            self._reconciler = threading.Thread(
                target=self._reconcile, name="skillbus-reconciler", daemon=True
            )
            self._reconciler.start()

    def _reconcile(self) -> None:
        """Have the reconciler run every so often."""
        while not self.services.stopping.wait(self.settings.workers.reconcile_seconds):
            self.send_maintenance()

    def _workloads(self) -> Iterator[tuple[Workload, int]]:
        """What this process works on, with how many threads."""
        workers = self.settings.workers
        threads = {
            "query": workers.query_threads,
            "ingest": workers.ingest_threads if self.writable else 0,
            "fetch": 1 if self.writable else 0,
            "link": 1 if self.writable else 0,
            "embed_sections": workers.embed_threads
            if self.writable and self._embed_sections
            else 0,
        }
        for workload in WORKLOADS:
            if threads[workload.name]:
                yield workload, threads[workload.name]

    def _start_worker(self, workload: Workload, threads: int) -> _Worker:
        app = create_app(lambda: self.services, workload.queues, memory_broker_config())
        controller = app.WorkController(
            pool="threads",
            concurrency=threads,
            hostname=f"{workload.name}@skillbus",
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            quiet=True,
            consumer_cls=ThreadedConsumer,
        )
        thread = threading.Thread(
            target=controller.start, name=f"skillbus-{workload.name}", daemon=True
        )
        thread.start()
        return _Worker(controller, thread)

    def _purge(self) -> None:
        """Empty the in-memory queues: messages of an earlier runtime of this process."""
        with self.app.connection_for_write() as connection:
            for queue in ALL_QUEUES:
                connection.default_channel.queue_declare(queue)
                connection.default_channel.queue_purge(queue)

    def stop(self) -> None:
        """Stop taking tasks, wait for those that run, release the stores.

        Nothing is lost: what has not run is in the journal and the catalog.
        """
        self.services.stopping.set()
        if self._reconciler is not None:
            self._reconciler.join()
        self._purge()
        for worker in self._workers:
            worker.controller.stop()
        for worker in self._workers:
            worker.thread.join(_STOP_SECONDS)
        self._workers.clear()
        self._stack.close()
        gc.unfreeze()

    def search_index(self) -> SearchIndex:
        """The search index that tasks use."""
        return self.services.index

    def get_status(self) -> dict[str, Any]:
        """How the library stands, and what waits."""
        status = home_status(
            self.settings, self.graph, self.journal, True, self.coordinator.task_error
        )
        return {
            **status,
            "queues": [
                {"queue": name, "waiting": queue_depth(self.app, name)} for name in ALL_QUEUES
            ],
            "oldest_waiting_seconds": oldest_change_age_seconds(self.graph, self.coordinator),
        }

    def warm_up(self) -> None:
        """Load the models and the library, so that the first query does not wait for them."""
        warm_up(self.services, ALL_QUEUES)

    def run_maintenance(self) -> None:
        """Run the reconciler in this thread."""
        self.maintain_now()

    def maintain_now(self) -> dict[str, object]:
        """Run the reconciler in this thread."""
        return maintain(self.services, Deadline(MAINTAIN.time_limit))
