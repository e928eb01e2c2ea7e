"""Base class of the backends with their own stores: journal, catalog, index and task queue."""

from __future__ import annotations

import contextlib
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import structlog
from typing_extensions import override

from config import tracing
from config.errors import NotFoundError, PermanentError, SkillbusError, TransientError, UsageError
from graph.protocol import SkillGraph
from search.protocol import SearchIndex
from skills.access import UNRESTRICTED, Reader
from skills.events import (
    Event,
    EventData,
    QueryAsked,
    get_changed_source,
    get_trace_context,
    new_event,
    replace_origin,
    with_trace_context,
)
from tasks.coordination.protocol import Coordinator
from tasks.evaluations.protocol import EvaluationStore
from tasks.history.purge import PurgeStores, purge_skill
from tasks.ingest.next_tasks import first_task, send_refine
from tasks.journal.protocol import JobKind, Journal, get_job_kind, job_id, trace_of
from tasks.outcomes.protocol import OutcomeStore
from tasks.policies import QUERY, REFINE
from tasks.query.context import check_query
from tasks.refine.pauses import RefinePause, get_refine_pause
from tasks.refine.unrefined import MAX_SENT
from tasks.send import result_backend_errors, send_task, send_task_if_room
from workers.backend.decision_backend import DecisionBackend
from workers.backend.model_stores import open_model_stores
from workers.backend.protocol import EventStatus, QueryStatus
from workers.backend.stores import check_no_replaced_index
from workers.library import dead_letters
from workers.library.access.reader_views import ReaderViews

log = structlog.get_logger()

_POLL_SECONDS = 0.002


class StoreBackend(ReaderViews, DecisionBackend):
    """Records events and queries in the journal, sends their tasks and reads the stores.

    app: the Celery application that sends tasks. stopping: set once the backend is closing.
    warming: whether what queries need is still being loaded.
    """

    graph: SkillGraph
    journal: Journal
    coordinator: Coordinator
    app: Any
    stopping: threading.Event
    warming = False
    watches_sources = False

    @abstractmethod
    def start(self) -> None:
        """Start."""

    @abstractmethod
    def stop(self) -> None:
        """Release the stores; accepted work stays accepted."""

    @abstractmethod
    def outcome_store(self) -> OutcomeStore:
        """Return the store of answered queries and their outcomes."""

    @abstractmethod
    def evaluation_store(self) -> EvaluationStore:
        """Return the store of kept runs of `skillbus eval`."""

    @override
    def __enter__(self) -> Self:
        self.start()
        return self

    @override
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    # -- access
    @override
    def set_source_groups(self, source_id: str, groups: Sequence[str]) -> None:
        super().set_source_groups(source_id, groups)
        self._send_waiting()  # the reconciler has links made again

    # -- events
    @override
    def submit(self, data: EventData, origin: str) -> str:
        return self.accept(new_event(data, origin))

    @override
    def accept(self, event: Event) -> str:
        self.accept_if_new(event)
        return job_id(event)

    def accept_if_new(self, event: Event, seconds: float | None = None) -> bool:
        """Accept an event or a query. Return False if it was accepted before; nothing changes then.

        seconds: time within which a query is to be answered [default: `workers.query_seconds`].
        Raises TransientError if too many events or queries are open.
        """
        data = event.parse_data()
        kind = get_job_kind(data)
        self.check_capacity(kind)
        wanted = (seconds or self.settings.workers.query_seconds) if kind == "query" else None
        if kind == "event" and event.owner:
            # Recorded first, so that outcomes of contributors do not count for what they changed.
            self.outcome_store().add_contributor(get_changed_source(data), event.owner)
        with _start_span(event):
            event = with_trace_context(event, tracing.current_context())
            is_new = self.journal.add_job(event, kind, wanted)
            if is_new:
                task = QUERY if kind == "query" else first_task(data)
                self._send(task.name, job_id(event), trace_of(event))
        return is_new

    def check_capacity(self, kind: JobKind) -> None:
        """Raise TransientError if too many events, queries or outcomes are open.

        Events and outcomes have the same limit, but are counted separately.
        """
        workers = self.settings.workers
        limit = workers.open_queries if kind == "query" else workers.open_events
        if self.journal.count_open_jobs(kind) >= limit:
            what = "queries" if kind == "query" else "events"
            raise TransientError(
                f"too many open {what} ({limit}, workers.open_{what}); try again later"
            )

    def _send(self, name: str, one: str, trace_id: str) -> None:
        """Send a task for a recorded job; if that fails, the reconciler sends it later."""
        with structlog.contextvars.bound_contextvars(trace_id=trace_id):
            try:
                send_task_if_room(self.app, name, [one])
            except TransientError as error:
                log.warning(
                    "accepted; sending to the broker failed, the reconciler will retry",
                    reason=str(error),
                )

    @override
    def get_event_status(self, event_id: str) -> EventStatus:
        job = self.journal.get_job(event_id)
        return EventStatus(job.state, job.reason, job.outcome or {})

    # -- queries
    @override
    def submit_query(
        self, request: QueryAsked, origin: str, owner: str = "", reader: Reader = UNRESTRICTED
    ) -> str:
        check_query(request, self.settings.limits.query_characters)
        self.check_pins(request, reader)
        return self.accept(replace_origin(new_event(request, origin), owner, reader))

    def check_pins(self, request: QueryAsked, reader: Reader = UNRESTRICTED) -> None:
        """Raise UsageError if this reader may not read a revision that a query pins."""
        if not request.pins:
            return
        revisions = self.revisions_for(reader)
        for skill_id, seq in request.pins.items():
            try:
                revision = revisions.read_revision(skill_id, seq)
            except NotFoundError as error:
                raise UsageError(f"pins: {error}") from error
            if not revision.is_reviewed:
                raise UsageError(f"pins: {revision.kept.key} waits for review")

    @override
    def answer_query(self, request: QueryAsked, origin: str) -> dict[str, Any]:
        """Run a query and wait on the result queue, which is faster than polling the journal."""
        self.check_pins(request)
        self.check_capacity("query")
        event = new_event(request, origin)
        with _start_span(event):
            event = with_trace_context(event, tracing.current_context())
            self.journal.add_job(event, "query", self.settings.workers.query_seconds)
            with structlog.contextvars.bound_contextvars(trace_id=trace_of(event)):
                result = send_task(self.app, QUERY.name, [job_id(event)], keep_result=True)
        outcome = self._wait_for_result(result)
        if outcome["state"] != "done":
            kind = UsageError if outcome["usage"] else PermanentError
            raise kind(str(outcome["reason"]))
        bundle: dict[str, Any] = outcome["bundle"]
        return bundle

    def _wait_for_result(self, result: Any) -> dict[str, Any]:
        """Return the message on the result queue; raises the error that the task raised."""
        from celery.exceptions import TimeoutError as NotAnsweredError

        errors = result_backend_errors(self.app)
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
                f"no answer within {seconds:g} s; send the query again, or raise "
                "workers.query_seconds"
            ) from None
        except errors as error:
            raise TransientError(
                f"the result queue does not answer ({error}); send the query again"
            ) from error
        finally:
            # The journal has the answer; the result queue would hold a copy of each.
            with contextlib.suppress(*errors):
                result.forget()
        if isinstance(outcome, SkillbusError):
            raise outcome
        if isinstance(outcome, BaseException):
            raise PermanentError(f"the query failed: {type(outcome).__name__}: {outcome}")
        message: dict[str, Any] = outcome
        return message

    @override
    def get_query_status(self, query_id: str) -> QueryStatus:
        job = self.journal.get_job(query_id)
        stages = self.journal.list_stages(query_id) if job.state == "accepted" else ()
        return QueryStatus(job.state, tuple(stages), job.outcome, job.reason)

    @override
    def cancel_query(self, query_id: str) -> None:
        self.journal.cancel_job(query_id)

    # -- revisions
    @abstractmethod
    def purge_index(self, stack: contextlib.ExitStack) -> SearchIndex:
        """Open the search index for writing; if it is not open yet, the stack closes it."""

    def drop_statistics(self) -> None:
        """Delete the saved statistics of the library."""

    @override
    def purge_skill(self, skill_id: str) -> dict[str, Any]:
        with contextlib.ExitStack() as stack:
            check_no_replaced_index(self.settings)
            answers, skill_pairs = open_model_stores(self.settings, stack)
            return purge_skill(
                PurgeStores(
                    settings=self.settings,
                    graph=self.graph,
                    index=self.purge_index(stack),
                    history=self.history_store(),
                    reviews=self.review_store(),
                    journal=self.journal,
                    evaluations=self.evaluation_store(),
                    coordinator=self.coordinator,
                    answers=answers,
                    skill_pairs=skill_pairs,
                    drop_statistics=self.drop_statistics,
                ),
                skill_id,
            )

    # -- refinement
    @override
    def request_refinement(self, skill_ids: Sequence[str]) -> bool:
        if not skill_ids or self.is_refining():
            return False
        # At most as many as fit into the queue: a task that is counted as pending, but not sent,
        # would never end.
        send_refine(
            self.coordinator,
            lambda name, ids: send_task(self.app, name, ids),
            skill_ids[:MAX_SENT],
        )
        return True

    @override
    def is_refining(self) -> bool:
        return bool(self.coordinator.count_pending(REFINE.name))

    @override
    def get_refine_pause(self) -> RefinePause | None:
        return get_refine_pause(self.coordinator, self.settings.language_model)

    # -- operation
    @abstractmethod
    def list_queues(self) -> list[dict[str, Any]] | None:
        """Return the queues with the messages that wait in each; None if that takes too long."""

    @abstractmethod
    def list_workers(self) -> list[dict[str, Any]]:
        """Return the workers that answer, each with its queues and its running tasks; none if that
        takes too long."""

    def get_recent_status(self) -> dict[str, Any]:
        """Return a status that may be some seconds old, without waiting for a new one."""
        return self.get_status()

    def get_unreachable(self) -> dict[str, str]:
        """Return the stores that do not answer, each with the reason."""
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

    @override
    def get_problem(self) -> str:
        return self.coordinator.task_error

    @override
    def get_wait_reason(self) -> str:
        return ""

    def get_progress(self) -> Mapping[str, int]:
        """Return counts of the catalog, and `events`: the number of open events."""
        return {**self.graph.get_counts(), "events": self.journal.count_open_jobs("event")}

    @override
    def retry_dead_letter(self, letter_id: str) -> dict[str, Any]:
        return dead_letters.retry_dead_letter(self, letter_id)

    def warm_up(self) -> None:
        """Load the models and stores that queries need, if they are answered in this process."""

    def start_warm_up(self) -> threading.Thread:
        """Warm up in a thread, and return it; `warming` stays true after a permanent error."""

        def run() -> None:
            try:
                self.warm_up()
            except TransientError as error:  # the first query loads what is missing
                log.warning("warm-up failed", reason=str(error))
            except SkillbusError as error:  # every query reports it
                log.error("warm-up failed", reason=str(error))
                return
            self.warming = False

        self.warming = True
        thread = threading.Thread(target=run, name="skillbus-warm-up", daemon=True)
        thread.start()
        return thread


def _start_span(event: Event) -> tracing.OpenSpan:
    """Return a span for recording an event and sending its task, in the trace of the event.

    The recorded event refers to this span, so that later work for it continues the trace.
    """
    attributes = {
        "cloudevents.event_id": event.id,
        "cloudevents.event_source": event.source,
        "cloudevents.event_type": event.type,
        "skillbus.job": job_id(event),
    }
    context = get_trace_context(event)
    return tracing.trace(f"record {event.type}", "producer", [context], attributes, trusted=False)
