"""The consumer: takes messages from the broker and confirms each once it is recorded."""

from __future__ import annotations

import threading
import time
from collections import deque

import structlog

from config.errors import SkillbusError
from tasks.measures import Measures
from workers.queue.broker import Broker, open_carrier
from workers.queue.intake import Intake, Refusal
from workers.queue.protocol import Carrier, Delivery

log = structlog.get_logger()

_WAIT_SECONDS = 0.3
_COUNT_SECONDS = 2.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.2, 5.0
_FIRST_HOLD_SECONDS, _LONGEST_HOLD_SECONDS = 0.05, 2.0


class Consumer:
    """Consumes until `stopping` is set; the message in hand is finished then.

    While a message cannot be recorded, because too many wait or a store is away, it stays the
    broker's and the consumer pauses. problem: why it does not get on, "" while it does. taken,
    refused: messages so far. last_message: when one came, seconds since the epoch. waiting:
    messages that no consumer has in hand, counted now and then; None: not known.
    """

    def __init__(
        self,
        intake: Intake,
        broker: Broker,
        name: str,
        stopping: threading.Event,
        measures: Measures,
    ) -> None:
        self._intake = intake
        self._broker = broker
        self._name = name
        self._stopping = stopping
        self._measures = measures
        self._held: deque[Delivery] = deque()
        self._refusals: dict[str, Refusal] = {}
        self.connected = threading.Event()
        self.problem = ""
        self.taken = 0
        self.refused = 0
        self.last_message: float | None = None
        self.waiting: int | None = None
        self._count_at = 0.0

    def run(self) -> None:
        """Connect, consume, and connect again; the thread's body."""
        pause = _FIRST_PAUSE_SECONDS
        while not self._stopping.is_set():
            try:
                carrier = open_carrier(self._broker, self._name)
                try:
                    self._tell("")
                    self.connected.set()
                    pause = _FIRST_PAUSE_SECONDS
                    self._consume(carrier)
                finally:
                    carrier.close()
            except SkillbusError as error:
                self._tell(str(error))
                self._stopping.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            self.connected.clear()
            self.waiting = None
            self._held.clear()
            self._refusals.clear()

    def _tell(self, problem: str) -> None:
        if problem and not self.problem:
            log.warning("submissions wait", reason=problem)
        elif self.problem and not problem:
            log.warning("submissions go on")
        self.problem = problem

    def _consume(self, carrier: Carrier) -> None:
        most = self._broker.settings.prefetch
        hold = _FIRST_HOLD_SECONDS
        patience = _WAIT_SECONDS
        while not self._stopping.is_set():
            arrived = carrier.receive(patience, most - len(self._held))
            self._held.extend(arrived)
            self._count(carrier, arrived)
            patience = _WAIT_SECONDS
            while self._held and not self._stopping.is_set():
                delivery = self._held[0]
                try:
                    self._take(delivery)
                except SkillbusError as error:
                    self._tell(str(error))
                    # The broker is asked meanwhile, so that it knows that we live.
                    patience, hold = hold, min(2 * hold, _LONGEST_HOLD_SECONDS)
                    break
                self._finish(carrier, delivery)
                self._tell("")
                hold = _FIRST_HOLD_SECONDS

    def _count(self, carrier: Carrier, arrived: list[Delivery]) -> None:
        if arrived:
            self.last_message = time.time()
        if time.monotonic() >= self._count_at or self.waiting is None:
            self._count_at = time.monotonic() + _COUNT_SECONDS
            self.waiting = carrier.waiting()

    def _take(self, delivery: Delivery) -> None:
        """Record a message, or bury it: once, however often its sender could not be told."""
        if delivery.mark not in self._refusals:
            refusal = self._intake.take(delivery.message)
            if refusal is not None:
                self._refusals[delivery.mark] = refusal
                self.refused += 1
                self._measures.submitted("refused")

    def _finish(self, carrier: Carrier, delivery: Delivery) -> None:
        """Tell the sender of what was refused, and confirm."""
        refusal = self._refusals.get(delivery.mark)
        reply_to = refusal.reply_to if refusal else ""
        if refusal and reply_to:
            sent = carrier.send(reply_to, refusal.event)
            self._measures.submitted("replied" if sent else "dropped")
            if not sent:
                log.warning("reply dropped: its queue is gone or full", reply_to=reply_to)
        carrier.confirm(delivery)
        self._refusals.pop(delivery.mark, None)
        self._held.popleft()
        if refusal is None:
            self.taken += 1
            self._measures.submitted("recorded")
