"""The consumer: takes messages from the broker and confirms each once it is recorded."""

from __future__ import annotations

import threading
import time
from collections import deque

import structlog

from config.errors import SkillbusError
from tasks.metrics_recorder import MetricsRecorder
from workers.queue.broker import Broker, open_message_consumer
from workers.queue.protocol import MessageConsumer, ReceivedMessage
from workers.queue.recorder import MessageRecorder, Rejection

log = structlog.get_logger()

_RECEIVE_SECONDS = 0.3
_COUNT_SECONDS = 2.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.2, 5.0
_FIRST_HOLD_SECONDS, _LONGEST_HOLD_SECONDS = 0.05, 2.0


class SubmissionConsumer:
    """Consumes until `stopping` is set; the message in hand is finished then.

    While a message cannot be recorded, because too many wait or a store is away, it stays the
    broker's and the consumer pauses. problem: why it does not get on, "" while it does. taken,
    refused: messages so far. last_message: when one came, seconds since the epoch. waiting:
    messages that no consumer has in hand, counted now and then; None: not known.
    """

    def __init__(
        self,
        recorder: MessageRecorder,
        broker: Broker,
        name: str,
        stopping: threading.Event,
        measures: MetricsRecorder,
    ) -> None:
        self._recorder = recorder
        self._broker = broker
        self._name = name
        self._stopping = stopping
        self._measures = measures
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
        """Connect, consume, and connect again; the thread's body."""
        reconnect_seconds = _FIRST_PAUSE_SECONDS
        while not self._stopping.is_set():
            try:
                message_consumer = open_message_consumer(self._broker, self._name)
                try:
                    self._set_problem("")
                    self.connected.set()
                    reconnect_seconds = _FIRST_PAUSE_SECONDS
                    self._consume(message_consumer)
                finally:
                    message_consumer.close()
            except SkillbusError as error:
                self._set_problem(str(error))
                self._stopping.wait(reconnect_seconds)
                reconnect_seconds = min(2 * reconnect_seconds, _LONGEST_PAUSE_SECONDS)
            self.connected.clear()
            self.waiting = None
            self._unacknowledged.clear()
            self._rejections.clear()

    def _set_problem(self, problem: str) -> None:
        if problem and not self.problem:
            log.warning("submissions wait", reason=problem)
        elif self.problem and not problem:
            log.warning("submissions go on")
        self.problem = problem

    def _consume(self, message_consumer: MessageConsumer) -> None:
        most = self._broker.settings.prefetch
        retry_seconds = _FIRST_HOLD_SECONDS
        timeout_seconds = _RECEIVE_SECONDS
        while not self._stopping.is_set():
            received_messages = message_consumer.receive(
                timeout_seconds, most - len(self._unacknowledged)
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
                    # The broker is asked meanwhile, so that it knows that we live.
                    timeout_seconds, retry_seconds = (
                        retry_seconds,
                        min(2 * retry_seconds, _LONGEST_HOLD_SECONDS),
                    )
                    break
                self._acknowledge(message_consumer, received)
                self._set_problem("")
                retry_seconds = _FIRST_HOLD_SECONDS

    def _count_messages(
        self, message_consumer: MessageConsumer, received_messages: list[ReceivedMessage]
    ) -> None:
        if received_messages:
            self.last_message = time.time()
        if time.monotonic() >= self._count_at or self.waiting is None:
            self._count_at = time.monotonic() + _COUNT_SECONDS
            self.waiting = message_consumer.count_ready()

    def _record(self, received: ReceivedMessage) -> None:
        """Record a message, or bury it: once, however often its sender could not be told."""
        if received.delivery_tag not in self._rejections:
            rejection = self._recorder.record(received.message)
            if rejection is not None:
                self._rejections[received.delivery_tag] = rejection
                self.refused += 1
                self._measures.record_submission("refused")

    def _acknowledge(self, message_consumer: MessageConsumer, received: ReceivedMessage) -> None:
        """Tell the sender of what was refused, and confirm."""
        rejection = self._rejections.get(received.delivery_tag)
        reply_to = rejection.reply_to if rejection else ""
        if rejection and reply_to:
            sent = message_consumer.send(reply_to, rejection.event)
            self._measures.record_submission("replied" if sent else "dropped")
            if not sent:
                log.warning("reply dropped: its queue is gone or full", reply_to=reply_to)
        message_consumer.acknowledge(received)
        self._rejections.pop(received.delivery_tag, None)
        self._unacknowledged.popleft()
        if rejection is None:
            self.recorded += 1
            self._measures.record_submission("recorded")
