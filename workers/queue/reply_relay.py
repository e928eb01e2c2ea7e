"""The relay of replies: from the journal's outbox to who asked, at least once, by one process at a
time."""

from __future__ import annotations

import threading
import time

import structlog
from pydantic import ValidationError

from config.errors import SkillbusError, TransientError, UsageError
from skills.events import (
    Answer,
    MessageRefused,
    QueryAnswered,
    QueryFailed,
    SkillFailed,
    SkillRemoved,
    SkillUpserted,
    answer_to,
    reply_to,
)
from tasks.journal.protocol import Job, trace_of
from tasks.measures import Measures
from workers.backend.channel import Channel
from workers.queue.broker import Broker, open_outlet
from workers.queue.intake import ORIGIN
from workers.queue.protocol import Outlet
from workers.queue.publication_tracker import Settling

log = structlog.get_logger()

_TURN_SECONDS = 5.0
_WAIT_SECONDS = 0.3
_AT_ONCE = 100
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.2, 5.0


class Relay:
    """Sends what the outbox holds until `stopping` is set.

    problem: why it does not get on, "" while it does. replied: jobs whose replies were sent.
    """

    def __init__(
        self, channel: Channel, broker: Broker, stopping: threading.Event, measures: Measures
    ) -> None:
        self._channel = channel
        self._broker = broker
        self._stopping = stopping
        self._measures = measures
        self._settling = Settling(channel.graph, broker.settings.settle_seconds)
        self._outlet: Outlet | None = None
        self.problem = ""
        self.replied = 0

    def run(self) -> None:
        """Work; the thread's body."""
        pause = _FIRST_PAUSE_SECONDS
        while not self._stopping.is_set():
            try:
                with self._channel.activity.exclusive("replies") as alone:
                    if alone:
                        self._take_turn()
                if not alone:
                    self._stopping.wait(_WAIT_SECONDS)
                self.problem, pause = "", _FIRST_PAUSE_SECONDS
            except SkillbusError as error:
                if not self.problem:
                    log.warning("replies wait", reason=str(error))
                self.problem = str(error)
                self._hang_up()
                self._stopping.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        self._hang_up()

    def _hang_up(self) -> None:
        if self._outlet is not None:
            self._outlet.close()
            self._outlet = None

    def _take_turn(self) -> None:
        """Send what there is, for a while: who has lost the lead unawares notices then."""
        end = time.monotonic() + _TURN_SECONDS
        journal = self._channel.journal
        while not self._stopping.is_set() and time.monotonic() < end:
            # Those that wait for their skills come first in the outbox: they hold up nobody.
            waiting = journal.unreplied(len(self._settling) + _AT_ONCE)
            if not sum(self._reply(job_id) for job_id in waiting):
                journal.await_unreplied(self._settling.due(_WAIT_SECONDS))

    def _reply(self, job_id: str) -> bool:
        """Whether a job is replied to now; not while its skills are on their way."""
        if self._stopping.is_set():
            return False
        try:
            job = self._channel.journal.job(job_id)
        except TransientError:
            raise
        except UsageError as error:  # forgotten just now, or written by another version
            log.error("reply cannot be made", job_id=job_id, reason=str(error))
            self._channel.journal.replied(job_id)
            return False
        answers = self._answers(job)
        if answers is None:
            return False
        name, trace = reply_to(job.event), trace_of(job.event)
        for answer in answers:
            reply = answer_to(job.event, answer, ORIGIN, trace)
            if self._outlet is None:
                self._outlet = open_outlet(self._broker)
            sent = self._outlet.send(name, reply)
            self._measures.submitted("replied" if sent else "dropped")
            if not sent:
                log.warning(
                    "reply dropped: its queue is gone or full", reply_to=name, job_id=job_id
                )
                break
        self._channel.journal.replied(job_id)
        self._settling.forget(job_id)
        self.replied += 1
        return True

    def _answers(self, job: Job) -> list[Answer] | None:
        if job.kind == "query":
            return [_answer(job)]
        if job.state == "done":
            return self._settling.answers(job.id, job.event)
        content = job.event.content()
        if isinstance(content, SkillUpserted | SkillRemoved):
            return [SkillFailed(skill_id=content.skill_id, reason=job.reason)]
        return [MessageRefused(reason=job.reason, message_id=job.event.id)]


def _answer(job: Job) -> Answer:
    if job.state != "done":
        return QueryFailed(query_id=job.id, reason=job.reason or job.state)
    try:
        return QueryAnswered.model_validate(job.outcome)
    except ValidationError:
        reason = "another version of skillbus has made the answer; ask again"
        return QueryFailed(query_id=job.id, reason=reason)
