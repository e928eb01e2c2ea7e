"""Consumer of submissions: receives messages and acknowledges each once it is recorded."""

from __future__ import annotations

import threading
import time
from collections import deque

import structlog

from config.backoff import Backoff
from config.errors import SkillbusError
from tasks.metrics_recorder import MetricsRecorder
from workers.queue.broker import Broker
from workers.queue.connect import open_message_consumer
from workers.queue.protocol import MessageConsumer, ReceivedMessage
from workers.queue.recorder import MessageRecorder, Rejection

log = structlog.get_logger()

_RECEIVE_SECONDS = 0.3
_COUNT_SECONDS = 2.0
_MIN_RECONNECT_SECONDS, _MAX_RECONNECT_SECONDS = 0.2, 5.0
_MIN_RETRY_SECONDS, _MAX_RETRY_SECONDS = 0.05, 2.0


class SubmissionConsumer:
    """Consumes messages until `stopping` is set; a message in progress is finished first.

    A message that cannot be recorded, because too many jobs wait or a store is unreachable, is left
    unacknowledged and retried; the consumer pauses meanwhile.

    problem: why it is paused, "" otherwise. recorded, refused: number of messages so far.
    last_message: time of the last message, seconds since the epoch. waiting: messages that no
    consumer has received, counted every 2 s; None if unknown.
    """

    def __init__(
        self,
        recorder: MessageRecorder,
        broker: Broker,
        name: str,
        stopping: threading.Event,
        metrics: MetricsRecorder,
    ) -> None:
        self._recorder = recorder
        self._broker = broker
        self._name = name
        self._stopping = stopping
        self._metrics = metrics
        self._unacknowledged: deque[ReceivedMessage] = deque()
        self._rejections: dict[str, Rejection] = {}
        self.connected = threading.Event()
        self.problem = ""
        self.recorded = 0
        self.refused = 0
        self.last_message: float | None = None
        self.waiting: int | None = None
        self._count_at = 0.0

    def run(self) -> None:
        """Connect and consume, and reconnect after an error; the target of a thread."""
        backoff = Backoff(_MIN_RECONNECT_SECONDS, _MAX_RECONNECT_SECONDS)
        while not self._stopping.is_set():
            try:
                message_consumer = open_message_consumer(self._broker, self._name)
                try:
                    self._set_problem("")
                    self.connected.set()
                    backoff.reset()
                    self._consume(message_consumer)
                finally:
                    message_consumer.close()
            except SkillbusError as error:
                self._set_problem(str(error))
                self._stopping.wait(backoff.pause())
            self.connected.clear()
            self.waiting = None
            self._unacknowledged.clear()
            self._rejections.clear()

    def _set_problem(self, problem: str) -> None:
        if problem and not self.problem:
            log.warning("submissions paused", reason=problem)
        elif self.problem and not problem:
            log.warning("submissions resumed")
        self.problem = problem

    def _consume(self, message_consumer: MessageConsumer) -> None:
        prefetch = self._broker.settings.prefetch
        backoff = Backoff(_MIN_RETRY_SECONDS, _MAX_RETRY_SECONDS)
        timeout_seconds = _RECEIVE_SECONDS
        while not self._stopping.is_set():
            received_messages = message_consumer.receive(
                timeout_seconds, prefetch - len(self._unacknowledged)
            )
            self._unacknowledged.extend(received_messages)
            self._count_messages(message_consumer, received_messages)
            timeout_seconds = _RECEIVE_SECONDS
            while self._unacknowledged and not self._stopping.is_set():
                received = self._unacknowledged[0]
                try:
                    self._record(received)
                except SkillbusError as error:
                    self._set_problem(str(error))
                    # Pausing inside `receive` keeps the connection and the claims alive.
                    timeout_seconds = backoff.pause()
                    break
                self._acknowledge(message_consumer, received)
                self._set_problem("")
                backoff.reset()

    def _count_messages(
        self, message_consumer: MessageConsumer, received_messages: list[ReceivedMessage]
    ) -> None:
        if received_messages:
            self.last_message = time.time()
        if time.monotonic() >= self._count_at or self.waiting is None:
            self._count_at = time.monotonic() + _COUNT_SECONDS
            self.waiting = message_consumer.count_ready()

    def _record(self, received: ReceivedMessage) -> None:
        """Record a message or reject it, once only, even if sending the rejection is retried."""
        if received.delivery_tag not in self._rejections:
            rejection = self._recorder.record(received.message)
            if rejection is not None:
                self._rejections[received.delivery_tag] = rejection
                self.refused += 1
                self._metrics.record_submission("refused")

    def _acknowledge(self, message_consumer: MessageConsumer, received: ReceivedMessage) -> None:
        """Send the rejection, if the message was rejected, then acknowledge the message."""
        rejection = self._rejections.get(received.delivery_tag)
        reply_to = rejection.reply_to if rejection else ""
        if rejection and reply_to:
            sent = message_consumer.send(reply_to, rejection.event)
            self._metrics.record_submission("replied" if sent else "dropped")
            if not sent:
                log.warning("reply dropped: its queue is missing or full", reply_to=reply_to)
        message_consumer.acknowledge(received)
        self._rejections.pop(received.delivery_tag, None)
        self._unacknowledged.popleft()
        if rejection is None:
            self.recorded += 1
            self._metrics.record_submission("recorded")
