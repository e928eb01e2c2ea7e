"""Consumer and relay of a process, each a thread."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from tasks.measures import Measures, NoMeasures
from workers.backend.channel import Channel
from workers.processes.process_name import process_name
from workers.queue.broker import broker_of
from workers.queue.consumer import Consumer
from workers.queue.intake import Intake
from workers.queue.reply_relay import Relay
from workers.queue.status_reporter import TELL_SECONDS, Teller, Told


class Submissions:
    """Takes submissions into a deployment and sends replies, while it is entered.

    The broker is connected to in the background, however long that takes. Raises UsageError at
    once when the settings name none.
    """

    def __init__(self, channel: Channel, measures: Measures | None = None) -> None:
        self.broker = broker_of(channel.settings)
        self.name = process_name()
        self._stopping = threading.Event()
        measures = measures or NoMeasures()
        intake = Intake(channel)
        self.consumer = Consumer(intake, self.broker, self.name, self._stopping, measures)
        self.relay = Relay(channel, self.broker, self._stopping, measures)
        self._teller = Teller(channel)
        runs = {"consumer": self.consumer.run, "relay": self.relay.run, "teller": self._tell}
        self._threads = [
            threading.Thread(target=run, name=f"skillbus-{name}", daemon=True)
            for name, run in runs.items()
        ]

    def __enter__(self) -> Self:
        """Begin."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Finish the message in hand, and end."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def status(self) -> Told:
        """Where submissions come from, what this process has done, and why it does not get on."""
        return {
            "consumer": self.name,
            "broker": self.broker.address,
            "connected": self.consumer.connected.is_set() and self._is_running(),
            "problem": self.consumer.problem or self.relay.problem,
            "waiting": self.consumer.waiting,
            "recorded": self.consumer.taken,
            "refused": self.consumer.refused,
            "replied": self.relay.replied,
            "last_message": self.consumer.last_message,
        }

    def unready(self) -> list[str]:
        """Why no submissions are taken now; empty while they are."""
        told = self.status()
        away = [] if told["connected"] else ["the broker is not connected"]
        return [told["problem"]] if told["problem"] else away

    def _is_running(self) -> bool:
        return all(thread.is_alive() for thread in self._threads)

    def _tell(self) -> None:
        while True:
            self._teller.tell(self.status())
            if self._stopping.wait(TELL_SECONDS):
                break
        self._teller.end()
