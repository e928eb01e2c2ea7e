"""What goes into a deployment and what comes out, whoever does the work."""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import structlog

from config.errors import (
    PermanentError,
    SkillbusError,
    TransientError,
    UsageError,
)
from config.settings import Settings
from graph.protocol import SkillGraph
from search.protocol import SearchIndex
from skills.events import Event, EventData, QueryAsked, new_event
from tasks.coordination.protocol import Coordinator
from tasks.ingest.next_tasks import first_task
from tasks.journal.protocol import JobKind, Journal, job_id, trace_of
from tasks.policies import MAINTAIN, QUERY
from tasks.send import send_task, send_task_if_room

log = structlog.get_logger()

_POLL_SECONDS = 0.002


class Backend(ABC):
    """Accepts events and queries, waits for answers, and tells how far the work is.

    A context manager: inside, the stores are open. stopping: set once it is closing.
    """

    settings: Settings
    graph: SkillGraph
    journal: Journal
    coordinator: Coordinator
    app: Any
    stopping: threading.Event

    @abstractmethod
    def start(self) -> None:
        """Begin."""

    @abstractmethod
    def stop(self) -> None:
        """Release the stores; what was accepted stays accepted."""

    @abstractmethod
    def search_index(self) -> SearchIndex:
        """The search index, to read revisions from."""

    def __enter__(self) -> Self:
        """Begin."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Release the stores."""
        self.stop()

    # -- what goes in
    def submit(self, data: EventData, origin: str) -> str:
        """Accept an event: recorded when this returns its id."""
        return self.accept(new_event(data, origin))

    def accept(self, event: Event) -> str:
        """Accept an event from elsewhere; returns the id of its job.

        One that was accepted before is left as it is. Raises TransientError when too many wait.
        """
        self.accept_if_new(event)
        return job_id(event)

    def accept_if_new(self, event: Event, seconds: float | None = None) -> bool:
        """Accept an event or a query from elsewhere; False when it was accepted before, and is left
        as it is.

        seconds: how long the answer to a query is wanted, at default `workers.query_seconds`.
        Raises TransientError when too many wait.
        """
        data = event.parse_data()
        is_query = isinstance(data, QueryAsked)
        kind: JobKind = "query" if is_query else "event"
        self.check_capacity(kind)
        wanted = (seconds or self.settings.workers.query_seconds) if is_query else None
        is_new = self.journal.add_job(event, kind, wanted)
        if is_new:
            task = QUERY if is_query else first_task(data)
            self._send(task.name, job_id(event), trace_of(event))
        return is_new

    def submit_query(self, request: QueryAsked, origin: str) -> str:
        """Accept a query: recorded when this returns its id. TransientError: too many wait."""
        query_id = self._record_query(request, origin)
        self._send(QUERY.name, query_id, query_id)
        return query_id

    def answer_query(self, request: QueryAsked, origin: str) -> dict[str, Any]:
        """Ask, and wait for the answer on the result queue: the bundle as JSON data.

        Raises UsageError or PermanentError with the reason when the query was wrong or failed,
        TransientError when it was not answered in time.
        """
        query_id = self._record_query(request, origin)
        with structlog.contextvars.bound_contextvars(trace_id=query_id):
            result = send_task(self.app, QUERY.name, [query_id], keep_result=True)
        outcome = self._wait_for_result(result)
        if outcome["state"] != "done":
            kind = UsageError if outcome["usage"] else PermanentError
            raise kind(str(outcome["reason"]))
        bundle: dict[str, Any] = outcome["bundle"]
        return bundle

    def _wait_for_result(self, result: Any) -> dict[str, Any]:
        """What comes on the result queue; raises what the task raised."""
        from celery.exceptions import TimeoutError as NotAnsweredError

        away = getattr(self.app.backend, "connection_errors", ())
        seconds = self.settings.workers.query_seconds
        try:
            outcome: Any = result.get(
                timeout=seconds,
                interval=_POLL_SECONDS,
                propagate=False,
                disable_sync_subtasks=False,
            )
        except NotAnsweredError:
            raise TransientError(
                f"no answer within {seconds:g} s (workers.query_seconds); the query may still run"
            ) from None
        # Celery raises RuntimeError where it cannot connect again.
        except (*away, RuntimeError) as error:
            raise TransientError(
                f"the result queue does not answer ({error}); the query may still run"
            ) from error
        finally:
            # The journal has the answer; the result queue would hold a copy of each.
            with contextlib.suppress(*away):
                result.forget()
        if isinstance(outcome, SkillbusError):
            raise outcome
        if isinstance(outcome, BaseException):
            raise PermanentError(f"the query failed: {type(outcome).__name__}: {outcome}")
        answered: dict[str, Any] = outcome
        return answered

    def _record_query(self, request: QueryAsked, origin: str) -> str:
        self.check_capacity("query")
        event = new_event(request, origin)
        self.journal.add_job(event, "query", self.settings.workers.query_seconds)
        return job_id(event)

    def check_capacity(self, kind: JobKind) -> None:
        """Raise TransientError when too many events or queries wait."""
        workers = self.settings.workers
        most = workers.open_events if kind == "event" else workers.open_queries
        if self.journal.count_open_jobs(kind) >= most:
            what = "events" if kind == "event" else "queries"
            raise TransientError(
                f"{most} {what} wait already (workers.open_{what}); try again in a while"
            )

    def _send(self, name: str, one: str, trace_id: str) -> None:
        """Send a task for what the journal holds; the reconciler sends what did not get through."""
        with structlog.contextvars.bound_contextvars(trace_id=trace_id):
            try:
                send_task_if_room(self.app, name, [one])
            except TransientError as error:
                log.warning("accepted, and will be sent later", reason=str(error))

    def send_maintenance(self) -> None:
        """Have the reconciler run once."""
        send_task(self.app, MAINTAIN.name, [])

    def warm_up(self) -> None:  # noqa: B027 - nothing to load is right where workers answer
        """Load what answers need, where this process is the one who answers."""

    def run_maintenance(self) -> None:  # noqa: B027 - nothing to do is right where workers tidy up
        """Leave the library swept, where this process is the one who does it."""

    # -- how far it is
    @abstractmethod
    def get_status(self) -> dict[str, Any]:
        """How the deployment stands: what `status` shows, and what figures are made of."""

    def get_unreachable(self) -> dict[str, str]:
        """The parts that do not answer, each with what is known about it."""
        parts: dict[str, Callable[[], object]] = {
            "journal": lambda: self.journal.count_open_jobs("query"),
            "catalog": self.graph.last_sequence,
        }
        found = {}
        for name, ask in parts.items():
            try:
                ask()
            except SkillbusError as error:
                found[name] = str(error)
        return found

    def trouble(self) -> str:
        """Why work does not go on, "" while it does."""
        return self.coordinator.task_error

    def get_progress(self) -> Mapping[str, int]:
        """Counts of the catalog, with `events` that have not ended."""
        return {**self.graph.get_counts(), "events": self.journal.count_open_jobs("event")}
