"""The backend of a distributed deployment: a client of its queues, journal and catalog."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from config.settings import Settings
from search.protocol import SearchIndex
from search.review_store import ReviewStore
from search.revision_history import RevisionHistory
from tasks.broker.broker_config import server_broker_config
from tasks.celery_app import create_app
from tasks.coordination.redis import RedisCoordinator
from tasks.evaluations.open import open_evaluations
from tasks.evaluations.protocol import EvaluationStore
from tasks.language_model.answer_store import AnswerStore
from tasks.outcomes.protocol import OutcomeStore
from tasks.query.process_state.review_cache import ReviewCache
from tasks.send import queue_depth
from tasks.services import Lazy, Services
from workers.backend.model_stores import open_answers
from workers.backend.store_backend import StoreBackend
from workers.backend.stores import (
    open_coordinator,
    open_graph,
    open_history,
    open_index,
    open_journal,
    open_outcomes,
    open_review_cache,
    open_review_store,
)
from workers.monitoring.recent_value import RecentValue
from workers.processes.current_process import (
    freeze_loaded_objects,
    unfreeze_loaded_objects,
    unique_process_name,
)
from workers.processes.workloads import ALL_QUEUES

if TYPE_CHECKING:
    from workers.monitoring.deployment_status import DeploymentStatus

_NO_WORKER_SECONDS = 30.0
"""Time without a worker after which processing is stalled; a new worker first loads its models."""

_NOTE_SECONDS = 2.0
"""Time without a worker after which the user is informed."""

_REPORT_SECONDS = 2.0
_FRESH_SECONDS = 0.5
_WAIT_SECONDS = 0.06
"""Time limit for the status that pages show: a server that does not answer must not delay them."""


class DistributedBackend(StoreBackend):
    """Sends tasks to the workers of a deployment; none runs in this process.

    writable: whether the schema of the catalog is created or migrated. Connections are opened on
    first use.
    """

    coordinator: RedisCoordinator

    def __init__(self, settings: Settings, *, writable: bool = False) -> None:
        self.settings = settings
        self.stopping = threading.Event()
        self._last_worker_seen = time.monotonic()
        self.app = create_client_app(settings)
        with contextlib.ExitStack() as opening:
            self.journal = open_journal(settings, opening, writable=True)
            self.graph = open_graph(settings, opening, writable=writable)
            self.coordinator = open_coordinator(
                settings, opening, lambda queue: queue_depth(self.app, queue), unique_process_name()
            )
            self._outcomes = open_outcomes(settings, opening)
            opening.callback(self.app.close)
            self._stack = opening.pop_all()
        self._index: Lazy[SearchIndex] = Lazy(
            lambda: open_index(settings, self._stack, writable=False)
        )
        self._history: Lazy[RevisionHistory] = Lazy(lambda: open_history(settings, self._stack))
        self._review_store: Lazy[ReviewStore] = Lazy(
            lambda: open_review_store(settings, self._stack)
        )
        self._review_cache = Lazy(lambda: open_review_cache(settings, self._review_store.get()))
        self._answers = Lazy(lambda: open_answers(settings, self._stack))
        self._recent_status = RecentValue(
            self.get_status, fresh_seconds=_FRESH_SECONDS, wait_seconds=_WAIT_SECONDS
        )
        self._evaluations = Lazy(lambda: open_evaluations(settings, self._stack))
        self._deployment_status: Lazy[DeploymentStatus] = Lazy(self._open_deployment_status)

    def _open_deployment_status(self) -> DeploymentStatus:
        from workers.monitoring.deployment_status import DeploymentStatus  # slow to import

        deployment_status = DeploymentStatus(self.settings, self.app)
        self._stack.callback(deployment_status.close)
        return deployment_status

    @override
    def warm_up(self) -> None:
        freeze_loaded_objects()
        self._stack.callback(unfreeze_loaded_objects)

    @override
    def get_status(self) -> dict[str, Any]:
        """Return the status of the deployment; a server that does not answer
        soon is a problem in it."""
        timeout_seconds = min(_REPORT_SECONDS, self.settings.servers.timeout_seconds)
        return self._deployment_status.get().get_status(timeout_seconds)

    @override
    def get_recent_status(self) -> dict[str, Any]:
        found = self._recent_status.get()
        return self.get_status() if found is None else found.value

    @override
    def list_queues(self) -> list[dict[str, Any]] | None:
        queues: list[dict[str, Any]] | None = self.get_recent_status()["queues"]
        return queues

    @override
    def list_workers(self) -> list[dict[str, Any]]:
        return self.get_recent_status()["workers"] or []

    @override
    def get_unreachable(self) -> dict[str, str]:
        servers = self.get_status()["servers"]
        return {one["server"]: one["problem"] for one in servers if not one["up"]}

    @override
    def get_problem(self) -> str:
        """Return why processing is stalled; also if no worker has been alive for a while."""
        now = time.monotonic()
        if self.coordinator.alive_workers():
            self._last_worker_seen = now
        if now - self._last_worker_seen > _NO_WORKER_SECONDS:
            return "no worker is running; start one with `skillbus worker`"
        return self.coordinator.task_error

    @override
    def get_wait_reason(self) -> str:
        if time.monotonic() - self._last_worker_seen > _NOTE_SECONDS:
            return (
                f"waiting up to {_NO_WORKER_SECONDS:.0f} seconds for a worker; "
                "`skillbus worker` starts one"
            )
        return ""

    @override
    def search_index(self) -> SearchIndex:
        return self._index.get()

    @override
    def answer_store(self) -> AnswerStore | None:
        return self._answers.get()

    @override
    def purge_index(self, stack: contextlib.ExitStack) -> SearchIndex:
        return open_index(self.settings, stack, writable=True)

    @override
    def history_store(self) -> RevisionHistory:
        return self._history.get()

    @override
    def review_store(self) -> ReviewStore:
        return self._review_store.get()

    @override
    def review_cache(self) -> ReviewCache:
        return self._review_cache.get()

    @override
    def outcome_store(self) -> OutcomeStore:
        return self._outcomes

    @override
    def evaluation_store(self) -> EvaluationStore:
        return self._evaluations.get()

    @override
    def start(self) -> None:
        pass

    @override
    def stop(self) -> None:
        self.stopping.set()
        self._stack.close()


def create_client_app(settings: Settings) -> Any:
    """Create a Celery application that sends tasks and queries the broker, but runs no task."""
    return create_app(_no_services, ALL_QUEUES, server_broker_config(settings.servers))


def _no_services() -> Services:
    raise RuntimeError("a client application runs no tasks")
