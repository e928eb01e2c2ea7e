"""The backend of an embedded deployment: stores, models and worker threads in one process."""

from __future__ import annotations

import contextlib
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import structlog
from typing_extensions import override

from config.errors import SkillbusError, TransientError
from config.settings import Settings
from search.process_memory import return_memory
from search.protocol import Encoder, SearchIndex
from search.review_store import ReviewStore
from search.revision_history import RevisionHistory
from skills.access import UNRESTRICTED, Reader
from skills.events import QueryAsked
from tasks.broker.broker_config import memory_broker_config
from tasks.celery_app import create_app
from tasks.coordination.local import LocalCoordinator
from tasks.evaluations.open import open_evaluations
from tasks.evaluations.protocol import EvaluationStore
from tasks.ingest.maintain import maintain, repair_catalog, resend_open_work
from tasks.ingest.preparation.processes import ProcessPreparer
from tasks.ingest.preparation.role_classifier import load_role_classifier
from tasks.language_model.answer_store import AnswerStore
from tasks.metrics_recorder import MetricsRecorder
from tasks.outcomes.links.mark_changed import has_unread_outcomes
from tasks.outcomes.protocol import OutcomeStore
from tasks.policies import EMBED_SECTIONS, EMBED_SKILLS, INGEST, MAINTAIN, Deadline
from tasks.query.process_state.review_cache import ReviewCache
from tasks.send import queue_depth, send_task
from tasks.services import Lazy, Services
from workers.backend.home import WriterLock, create_home
from workers.backend.protocol import EmbedMode, RefineMode
from workers.backend.store_backend import StoreBackend
from workers.backend.stores import (
    open_history,
    open_review_store,
    open_services,
    require_library,
)
from workers.monitoring.status import home_status, oldest_change_age_seconds
from workers.processes.current_process import unfreeze_loaded_objects
from workers.processes.interpreter import child_environment, module_command
from workers.processes.warm_up import warm_up
from workers.processes.worker_threads import (
    STOP_SECONDS,
    WorkerThread,
    describe_workers,
    start_worker,
)
from workers.processes.workloads import ALL_QUEUES, WORKLOADS, Workload

log = structlog.get_logger()

_SWITCH_SECONDS = 0.0005
_POLL_SECONDS = 0.02
_MANY_INGEST_TASKS = 8
"""Number of waiting ingest tasks, of up to 32 skills each, from which child
processes prepare skills."""


def _start_preparing(connection: int) -> subprocess.Popen[bytes]:
    """Start a process that prepares skills over an inherited connection."""
    return subprocess.Popen(  # noqa: S603 - our own program
        module_command("tasks.ingest.preparation.child", [str(connection)]),
        env=child_environment(),
        pass_fds=[connection],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )


class EmbeddedBackend(StoreBackend):
    """Runs all tasks of an embedded library in threads of this process.

    A writable backend holds the writer lock of the home. Any number of read-only backends answer
    queries at the same time; their journals are in memory. A process has one embedded backend at a
    time, as the in-memory broker is shared.

    encoder: used instead of the encoder that the settings name. embeds: which vectors this process
    computes; the rest is left to a later process. refine: which skills this process refines.
    metrics: records how tasks run. Raises UsageError if another process holds the lock, or if
    there is no library to read.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        writable: bool,
        encoder: Encoder | None = None,
        embeds: EmbedMode = "sections",
        refine: RefineMode = "always",
        metrics: MetricsRecorder | None = None,
    ) -> None:
        self.settings = settings
        self._metrics = metrics
        self._embeds = embeds
        self._refine = refine
        self._encoder = encoder
        self.writable = writable
        self._stack = contextlib.ExitStack()
        self._workers: list[WorkerThread] = []
        self._reconciler: threading.Thread | None = None
        with contextlib.ExitStack() as opening:
            self.services = self._open(opening)
            self._stack = opening.pop_all()
        self.graph, self.journal = self.services.graph, self.services.journal
        self._history: Lazy[RevisionHistory] = Lazy(
            lambda: self.services.history or open_history(settings, self._stack)
        )
        self._review_store: Lazy[ReviewStore] = Lazy(
            lambda: self.services.review_store or open_review_store(settings, self._stack)
        )
        self._evaluations: Lazy[EvaluationStore] = Lazy(
            lambda: open_evaluations(settings, self._stack)
        )
        self.coordinator, self.stopping = self.services.coordinator, self.services.stopping
        self.app = create_app(lambda: self.services, ALL_QUEUES, memory_broker_config())
        # Celery runs tasks on threads through the default application, not through the one
        # that received them.
        self.app.set_default()

    def _open(self, stack: contextlib.ExitStack) -> Services:
        settings, home = self.settings, self.settings.home
        if self.writable:
            # Loaded to refuse an invalid file now, not when the first skill is ingested.
            load_role_classifier(settings.roles.weights)
            create_home(home)
            lock = WriterLock(home)
            lock.acquire()
            stack.callback(lock.release)
        else:
            require_library(settings)
        services = open_services(
            settings,
            stack,
            lambda name, ids: send_task(self.app, name, ids),
            writable=self.writable,
            encoder=self._encoder,
            metrics=self._metrics,
        )
        services.sends_refine = self._refine == "always"
        if self.writable:
            services.preparer = ProcessPreparer(
                _start_preparing,
                lambda: services.coordinator.count_pending(INGEST.name) >= _MANY_INGEST_TASKS,
            )
            stack.callback(services.preparer.close)
        return services

    # -- workers
    @override
    def start(self) -> None:
        """Start the worker threads and send the tasks of unfinished work again."""
        logging.getLogger("kombu").setLevel(logging.ERROR)
        # Threads that answer queries should soon get the interpreter back from those that index.
        sys.setswitchinterval(_SWITCH_SECONDS)
        self._purge()
        for workload in self._workloads():
            self._workers.append(start_worker(self.app, *workload))
        if self.writable:
            repair_catalog(self.services)
            report = resend_open_work(self.services)
            log.info("work resumed", **report)
            self._reconciler = threading.Thread(
                target=self._reconcile, name="skillbus-reconciler", daemon=True
            )
            self._reconciler.start()

    def _reconcile(self) -> None:
        """Send the reconciler's task every `workers.reconcile_seconds`, and return memory."""
        while not self.services.stopping.wait(self.settings.workers.reconcile_seconds):
            self.send_maintenance()
            return_memory()

    def _workloads(self) -> Iterator[tuple[Workload, int]]:
        """Yield the workloads of this process, each with its number of threads."""
        workers = self.settings.workers
        threads = {
            "query": workers.query_threads,
            "ingest": workers.ingest_threads if self.writable else 0,
            "fetch": 1 if self.writable else 0,
            "link": 1 if self.writable else 0,
            # The store of outcomes is shared by all processes of a home.
            "outcomes": 1,
            "embed_skills": workers.embed_threads
            if self.writable and self._embeds != "nothing"
            else 0,
            "embed_sections": workers.embed_threads
            if self.writable and self._embeds == "sections"
            else 0,
            # A task itself has `language_model.concurrency` threads.
            "refine": int(self.writable and self._refines),
        }
        for workload in WORKLOADS:
            if threads[workload.name]:
                yield workload, threads[workload.name]

    @property
    def _refines(self) -> bool:
        return self._refine != "never" and bool(self.settings.language_model.offline_stages)

    def _purge(self) -> None:
        """Empty the in-memory queues, which may hold messages of an earlier
        backend of this process."""
        with self.app.connection_for_write() as connection:
            for queue in ALL_QUEUES:
                connection.default_channel.queue_declare(queue)
                connection.default_channel.queue_purge(queue)

    @override
    def stop(self) -> None:
        """Stop taking tasks, wait for running tasks, and release the stores.

        Tasks that have not run are in the journal and the catalog, and are sent at the next start.
        """
        self.services.stopping.set()
        self._cancel_model_calls()
        if self._reconciler is not None:
            self._reconciler.join()
        self._purge()
        for worker in self._workers:
            worker.stop()
        for worker in self._workers:
            worker.thread.join(STOP_SECONDS)
        self._workers.clear()
        self.services.usage_counter.flush()
        if self.writable:
            self._save_library()
        self._stack.close()

    def _save_library(self) -> None:
        """Save the statistics of the library for later processes."""
        try:
            self.services.library.save()
        except SkillbusError as error:  # a later process counts the library itself
            log.warning("the statistics of the library were not saved", reason=str(error))

    def _cancel_model_calls(self) -> None:
        """Cancel the model calls of running refine tasks; a later process makes them again."""
        model = self.services.language_model
        if model is not None and (opened := model.get_if_created()) is not None:
            opened.close()

    @override
    def search_index(self) -> SearchIndex:
        return self.services.index

    @override
    def answer_store(self) -> AnswerStore | None:
        return self.services.answers

    @override
    def purge_index(self, stack: contextlib.ExitStack) -> SearchIndex:
        return self.services.index

    @override
    def drop_statistics(self) -> None:
        self.services.library.drop_saved()

    @override
    def history_store(self) -> RevisionHistory:
        return self._history.get()

    @override
    def review_store(self) -> ReviewStore:
        return self._review_store.get()

    @override
    def review_cache(self) -> ReviewCache:
        return self.services.reviews

    @override
    def outcome_store(self) -> OutcomeStore:
        return self.services.outcomes

    @override
    def evaluation_store(self) -> EvaluationStore:
        return self._evaluations.get()

    @override
    def submit_query(
        self, request: QueryAsked, origin: str, owner: str = "", reader: Reader = UNRESTRICTED
    ) -> str:
        if not self.writable:  # the journal is in memory, and no reconciler deletes from it
            self.journal.delete_ended_jobs("query", self.settings.workers.query_seconds)
        return super().submit_query(request, origin, owner, reader)

    @override
    def get_status(self) -> dict[str, Any]:
        status = home_status(
            self.settings,
            self.graph,
            self.journal,
            True,
            self.coordinator.task_error,
            self.services.answers,
            self.services.refined,
            self.services.outcomes,
            self.review_lister,
        )
        if (refinement := status.get("language_model", {}).get("refinement")) is not None:
            pause = self.get_refine_pause()
            refinement["running"] = self.is_refining()
            refinement["paused"] = None if pause is None else pause._asdict()
        return {
            **status,
            "queues": self.list_queues(),
            "oldest_waiting_seconds": oldest_change_age_seconds(self.graph, self.coordinator),
        }

    @override
    def list_queues(self) -> list[dict[str, Any]]:
        return [{"queue": name, "waiting": queue_depth(self.app, name)} for name in ALL_QUEUES]

    @override
    def list_workers(self) -> list[dict[str, Any]]:
        """Return the thread pools of this process."""
        running = {}
        if isinstance(self.coordinator, LocalCoordinator):
            running = self.coordinator.get_running_tasks()
        return describe_workers(self._workloads(), list(running.values()))

    @override
    def warm_up(self) -> None:
        warm_up(self.services, ALL_QUEUES)
        # It has frozen the models and the library, which are released with this backend. If it has
        # frozen nothing, objects that the starter of this process froze stay frozen.
        self._stack.callback(unfreeze_loaded_objects)

    @override
    def run_maintenance(self) -> None:
        self.maintain_now()

    def maintain_now(self) -> dict[str, object]:
        """Run the reconciler in this thread, and return its report."""
        return maintain(self.services, Deadline(MAINTAIN.time_limit))

    @override
    def wait_until_linked(self) -> None:
        self._wait_while(
            lambda: bool(self.graph.list_awaiting_linking(1)) or has_unread_outcomes(self.services)
        )

    @override
    def wait_until_idle(self) -> None:
        self._wait_while(self._is_busy)

    def _is_busy(self) -> bool:
        progress = self.get_progress()
        tasks = (INGEST, EMBED_SKILLS, EMBED_SECTIONS)
        pending = any(self.coordinator.count_pending(task.name) for task in tasks)
        open_jobs = progress["events"] or self.journal.count_open_jobs("outcome")
        return bool(open_jobs or progress["waiting"] or progress["unlinked"] or pending)

    def _wait_while(self, is_busy: Callable[[], bool]) -> None:
        while is_busy():
            if problem := self.get_problem():
                raise TransientError(f"{problem}; accepted work resumes with the next run")
            time.sleep(_POLL_SECONDS)
