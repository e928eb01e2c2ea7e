"""The composition root: stores, models, workers and channels, built from settings."""

from __future__ import annotations

import contextlib
import gc
import logging
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from config.errors import PermanentError, TransientError, UsageError
from config.settings import Settings
from graph.linking import Linker
from graph.local import SqliteSkillGraph
from search.local import LocalSearchIndex
from search.models import encoder_identity, load_reranker, make_encoder
from search.protocol import Encoder, Reranker
from skills.events import Data, Event, QueryAsked, new_event
from tasks.app import create_app, send
from tasks.journal import Journal
from tasks.library import Library
from tasks.maintain import maintain, repair, resend
from tasks.policies import (
    INGEST_QUEUE,
    LINK_QUEUE,
    MAINTAIN,
    MAINTAIN_QUEUE,
    PAGE_QUEUE,
    PLAN,
    PLAN_QUEUE,
    QUERY,
    QUERY_QUEUE,
    Deadline,
)
from tasks.roles import role_classifier
from tasks.services import Lazy, Services
from workers.embedded import EmbeddedConsumer
from workers.lock import WriterLock

log = structlog.get_logger()

_BROKER = "memory://localhost//"
_RESULTS = "cache+memory://"
_POLL_SECONDS = 0.002
_STOP_SECONDS = 20.0
_SWITCH_SECONDS = 0.0005


@dataclass(frozen=True, slots=True)
class Workload:
    """Queues that share worker threads."""

    name: str
    queues: tuple[str, ...]
    threads: int


@dataclass(slots=True)
class _Worker:
    controller: Any
    thread: threading.Thread


class Runtime:
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
        paging: bool = True,
    ) -> None:
        self.settings = settings
        self._paging = paging
        self._encoder = encoder
        self.writable = writable
        self._stack = contextlib.ExitStack()
        self._workers: list[_Worker] = []
        self._reconciler: threading.Thread | None = None
        with contextlib.ExitStack() as opening:
            self.services = self._open(opening)
            self._stack = opening.pop_all()
        self._client = create_app(self.services, _ALL_QUEUES, _BROKER, _RESULTS)
        # Celery runs tasks on threads through the default application, whichever received them.
        self._client.set_default()
        self._client.conf.broker_transport_options = {"polling_interval": _POLL_SECONDS}

    def _open(self, stack: contextlib.ExitStack) -> Services:
        settings, home = self.settings, self.settings.home
        if self.writable:
            # a wrong file is refused now, not when the first skill comes in
            role_classifier(settings.roles.weights)
            _make_home(home)
            lock = WriterLock(home)
            lock.acquire()
            stack.callback(lock.release)
        elif not (home / "graph.db").exists():
            raise UsageError(f"{home} holds no library yet; run `skillbus sync DIR` first")
        journal = Journal(home / "journal.db" if self.writable else ":memory:")
        stack.callback(journal.close)
        graph = SqliteSkillGraph(home / "graph.db", writable=self.writable)
        stack.callback(graph.close)
        given = self._encoder
        identity = encoder_identity(settings.encoder.model) if given is None else given
        index = LocalSearchIndex(
            home / "index", identity.model, identity.dimension, writable=self.writable
        )
        stack.callback(index.close)
        return Services(
            settings=settings,
            journal=journal,
            index=index,
            graph=graph,
            library=Library(graph, index),
            encoder=Lazy(lambda: given or make_encoder(settings.encoder)),
            reranker=_lazy_reranker(settings),
            linker=Linker(graph),
            writable=self.writable,
            send=lambda name, ids: send(self._client, name, ids),
        )

    def __enter__(self) -> Runtime:
        """Start the workers and send again what an earlier process left."""
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Stop the workers and release the stores."""
        self.stop()

    # -- workers
    def start(self) -> None:
        """Start worker threads; what the journal and the catalog hold unfinished is sent again."""
        logging.getLogger("kombu").setLevel(logging.ERROR)
        # Threads that answer queries should get the interpreter back soon from those that index.
        sys.setswitchinterval(_SWITCH_SECONDS)
        self._purge()
        for workload in _workloads(self.settings, self.writable, self._paging):
            self._workers.append(self._start_worker(workload))
        if self.writable:
            repair(self.services)
            report = resend(self.services)
            log.info("resumed", **report)
            self._reconciler = threading.Thread(
                target=self._reconcile, name="skillbus-reconciler", daemon=True
            )
            self._reconciler.start()

    def _reconcile(self) -> None:
        """Have the reconciler run every so often."""
        while not self.services.stopping.wait(self.settings.workers.reconcile_seconds):
            self.send_maintenance()

    def _start_worker(self, workload: Workload) -> _Worker:
        app = create_app(self.services, workload.queues, _BROKER, _RESULTS)
        app.conf.broker_transport_options = {"polling_interval": _POLL_SECONDS}
        controller = app.WorkController(
            pool="threads",
            concurrency=workload.threads,
            hostname=f"{workload.name}@skillbus",
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            quiet=True,
            consumer_cls=EmbeddedConsumer,
        )
        thread = threading.Thread(
            target=controller.start, name=f"skillbus-{workload.name}", daemon=True
        )
        thread.start()
        return _Worker(controller, thread)

    def _purge(self) -> None:
        """Empty the in-memory queues: messages of an earlier runtime of this process."""
        with self._client.connection_for_write() as connection:
            for queue in _ALL_QUEUES:
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

    def warm_up(self) -> None:
        """Load the models and the library, so that the first query does not wait for them."""
        self.services.encoder.get().encode(["warm up"])
        self.services.library.refresh()
        if self.services.reranker is not None:
            try:
                self.services.reranker.get()
            except PermanentError as error:  # every query will say so too
                log.error("reranker cannot be loaded", reason=str(error))
        # Models and library stay: collecting garbage need not look through them again, which
        # takes a tenth of a second in the middle of a query.
        gc.collect()
        gc.freeze()

    # -- what goes in
    def submit(self, data: Data, origin: str) -> str:
        """Accept an event: on disk when this returns its id."""
        event = new_event(data, origin)
        self.accept(event)
        return event.id

    def accept(self, event: Event) -> None:
        """Accept an event from elsewhere; one that was accepted before is left as it is."""
        event.content()
        if self.services.journal.accept(event, "event"):
            self.services.send(PLAN.name, [event.id])

    def ask(self, asked: QueryAsked, origin: str) -> str:
        """Accept a query: on disk (in a writing process) when this returns its id."""
        event = new_event(asked, origin)
        expires = time.time() + self.settings.workers.query_seconds
        self.services.journal.accept(event, "query", expires)
        self.services.send(QUERY.name, [event.id])
        return event.id

    def answer(self, asked: QueryAsked, origin: str) -> dict[str, Any]:
        """Ask, and wait for the answer on the result queue: the bundle as JSON data.

        Raises UsageError or PermanentError with the reason when the query was wrong or failed,
        TransientError when it was not answered in time.
        """
        from celery.exceptions import TimeoutError as NotAnsweredError

        event = new_event(asked, origin)
        seconds = self.settings.workers.query_seconds
        self.services.journal.accept(event, "query", time.time() + seconds)
        result = send(self._client, QUERY.name, [event.id], answered=True)
        try:
            outcome: dict[str, Any] = result.get(
                timeout=seconds, interval=_POLL_SECONDS, disable_sync_subtasks=False
            )
        except NotAnsweredError:
            raise TransientError(
                f"no answer within {seconds:g} s (workers.query_seconds); the query may still run"
            ) from None
        finally:
            # The journal has the answer; the result queue would hold a copy of each.
            result.forget()
        if outcome["state"] != "done":
            kind = UsageError if outcome["usage"] else PermanentError
            raise kind(str(outcome["reason"]))
        bundle: dict[str, Any] = outcome["bundle"]
        return bundle

    def send_maintenance(self) -> None:
        """Have the reconciler run once."""
        self.services.send(MAINTAIN.name, [])

    # -- how far it is
    def progress(self) -> Mapping[str, int]:
        """Counts of the catalog, with `events` that have not ended."""
        counts = dict(self.services.graph.counts())
        counts["events"] = len(self.services.journal.open_jobs("event"))
        return counts

    def watch_progress(self, interval: float = 0.1) -> Iterator[Mapping[str, int]]:
        """Progress every `interval` seconds."""
        while not self.services.stopping.is_set():
            yield self.progress()
            time.sleep(interval)

    def maintain_now(self) -> dict[str, object]:
        """Run the reconciler in this thread."""
        return maintain(self.services, Deadline(MAINTAIN.seconds))


_ALL_QUEUES = (PLAN_QUEUE, INGEST_QUEUE, PAGE_QUEUE, LINK_QUEUE, MAINTAIN_QUEUE, QUERY_QUEUE)


def _workloads(settings: Settings, writable: bool, paging: bool) -> Iterator[Workload]:
    yield Workload("query", (QUERY_QUEUE,), settings.workers.query_threads)
    if writable:
        yield Workload("ingest", (PLAN_QUEUE, INGEST_QUEUE), settings.workers.ingest_threads)
        yield Workload("link", (LINK_QUEUE, MAINTAIN_QUEUE), 1)
    if writable and paging:
        yield Workload("page", (PAGE_QUEUE,), settings.workers.page_threads)


def _lazy_reranker(settings: Settings) -> Lazy[Reranker] | None:
    if not settings.reranker.model:
        return None
    return Lazy(lambda: load_reranker(settings.reranker))


def _make_home(home: Path) -> None:
    try:
        # What lies there, the socket of `serve` too, is its owner's alone.
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageError(f"{home} is a file; name a folder with SKILLBUS_HOME") from None
    except OSError as error:
        raise UsageError(f"{home} cannot be made: {error.strerror}; set SKILLBUS_HOME") from error
