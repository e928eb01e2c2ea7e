"""Relay of replies: publishes the journal's outbox to the brokers' reply queues.

Each reply is sent at least once. One process at a time publishes, holding the lock `replies`.
"""

from __future__ import annotations

import threading
import time

import structlog
from pydantic import ValidationError

from config import tracing
from config.backoff import Backoff
from config.errors import SkillbusError, UsageError
from skills.events import (
    Event,
    MessageRefused,
    OutcomesRecorded,
    OutcomesRefused,
    QueryAnswered,
    QueryFailed,
    Reply,
    SkillFailed,
    SkillRemoved,
    SkillUpserted,
    get_trace_context,
    new_reply,
    with_trace_context,
)
from tasks.journal.protocol import Job, trace_of
from tasks.metrics_recorder import MetricsRecorder
from workers.backend.store_backend import StoreBackend
from workers.queue.broker import Broker
from workers.queue.connect import open_reply_publisher
from workers.queue.protocol import ReplyPublisher
from workers.queue.publication_tracker import PublicationTracker
from workers.queue.recorder import ORIGIN

log = structlog.get_logger()

_LEASE_SECONDS = 5.0
_WAIT_SECONDS = 0.3
_BATCH_SIZE = 100
_MIN_RETRY_SECONDS, _MAX_RETRY_SECONDS = 0.2, 5.0


class OutboxRelay:
    """Publishes the replies of the outbox until `stopping` is set.

    problem: why it is paused, "" otherwise. replied: number of jobs whose replies were sent.
    """

    def __init__(
        self,
        backend: StoreBackend,
        broker: Broker,
        stopping: threading.Event,
        metrics: MetricsRecorder,
    ) -> None:
        self._backend = backend
        self._broker = broker
        self._stopping = stopping
        self._metrics = metrics
        self._publication_tracker = PublicationTracker(
            backend.graph, broker.settings.settle_seconds
        )
        self._reply_publisher: ReplyPublisher | None = None
        self.problem = ""
        self.replied = 0

    def run(self) -> None:
        """Publish replies whenever this process holds the lock; the target of a thread."""
        backoff = Backoff(_MIN_RETRY_SECONDS, _MAX_RETRY_SECONDS)
        while not self._stopping.is_set():
            try:
                with self._backend.coordinator.try_lock("replies") as is_leader:
                    if is_leader:
                        self._send_pending()
                if not is_leader:
                    self._stopping.wait(_WAIT_SECONDS)
                self.problem = ""
                backoff.reset()
            except SkillbusError as error:
                if not self.problem:
                    log.warning("replies paused", reason=str(error))
                self.problem = str(error)
                self._close_publisher()
                self._stopping.wait(backoff.pause())
        self._close_publisher()

    def _close_publisher(self) -> None:
        if self._reply_publisher is not None:
            self._reply_publisher.close()
            self._reply_publisher = None

    def _send_pending(self) -> None:
        """Send the pending replies for at most 5 s; the lock is checked again afterwards."""
        end = time.monotonic() + _LEASE_SECONDS
        journal = self._backend.journal
        while not self._stopping.is_set() and time.monotonic() < end:
            # Jobs that wait for their skills are first in the outbox; the limit
            # includes jobs after them.
            waiting = journal.list_pending_replies(len(self._publication_tracker) + _BATCH_SIZE)
            self._publication_tracker.keep_only(waiting)
            due = filter(self._publication_tracker.is_due, waiting)
            if not sum(self._send_reply(job_id) for job_id in due):
                journal.wait_for_pending_reply(
                    self._publication_tracker.seconds_until_due(_WAIT_SECONDS)
                )

    def _send_reply(self, job_id: str) -> bool:
        """Send the replies to a job; return False if its skills are still being published."""
        if self._stopping.is_set():
            return False
        try:
            job = self._backend.journal.get_job(job_id)
        except UsageError as error:  # deleted meanwhile, or of another version
            log.error("reply cannot be built", job_id=job_id, reason=str(error))
            self._backend.journal.mark_replied(job_id)
            return False
        answers = self._build_answers(job)
        if answers is None:
            return False
        name, trace = job.event.replyto, trace_of(job.event)
        for answer in answers:
            reply = new_reply(job.event, answer, ORIGIN, trace)
            if self._reply_publisher is None:
                self._reply_publisher = open_reply_publisher(self._broker)
            with _start_span(reply, job, name):
                reply = with_trace_context(reply, tracing.current_context())
                sent = self._reply_publisher.send(name, reply)
            self._metrics.record_submission("replied" if sent else "dropped")
            if not sent:
                log.warning(
                    "reply dropped: its queue is missing or full", reply_to=name, job_id=job_id
                )
                break
        self._backend.journal.mark_replied(job_id)
        self.replied += 1
        return True

    def _build_answers(self, job: Job) -> list[Reply] | None:
        if job.kind == "query":
            return [_build_query_answer(job)]
        if job.kind == "outcome":
            return [_build_outcome_answer(job)]
        if job.state == "done":
            return self._publication_tracker.get_answers(job.id, job.event)
        content = job.event.parse_data()
        if isinstance(content, SkillUpserted | SkillRemoved):
            return [SkillFailed(skill_id=content.skill_id, reason=job.reason)]
        return [MessageRefused(reason=job.reason, message_id=job.event.id)]


def _start_span(reply: Event, job: Job, queue: str) -> tracing.OpenSpan:
    """Return a span for sending a reply, in the trace of the event that it answers."""
    attributes = {
        "messaging.operation.type": "send",
        "messaging.operation.name": "send",
        "messaging.destination.name": queue,
        "messaging.message.id": reply.id,
        "cloudevents.event_type": reply.type,
    }
    context = get_trace_context(job.event)
    return tracing.trace(f"send {reply.type}", "producer", [context], attributes)


def _build_outcome_answer(job: Job) -> Reply:
    query_id = str(job.event.data["query_id"])
    if job.state != "done" or job.outcome is None:
        return OutcomesRefused(query_id=query_id, reason=job.reason or job.state)
    return OutcomesRecorded(query_id=query_id, outcomes=job.outcome["outcomes"])


def _build_query_answer(job: Job) -> Reply:
    if job.state != "done":
        return QueryFailed(query_id=job.id, reason=job.reason or job.state)
    try:
        return QueryAnswered.model_validate(job.outcome)
    except ValidationError:
        reason = "the answer was written by another version of skillbus; ask again"
        return QueryFailed(query_id=job.id, reason=reason)
