"""Consumer and relay of a process, each a thread."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from workers.channel import Channel
from workers.names import process_name
from workers.submissions.broker import broker_of
from workers.submissions.consumer import Consumer
from workers.submissions.intake import Intake
from workers.submissions.relay import Relay


class Submissions:
    """Takes submissions into a deployment and sends replies, while it is entered.

    The broker is connected to in the background, however long that takes. Raises UsageError at
    once when the settings name none.
    """

    def __init__(self, channel: Channel) -> None:
        self.broker = broker_of(channel.settings)
        self._stopping = threading.Event()
        self.consumer = Consumer(Intake(channel), self.broker, process_name(), self._stopping)
        self.relay = Relay(channel, self.broker, self._stopping)
        self._threads = [
            threading.Thread(target=self.consumer.run, name="skillbus-consumer", daemon=True),
            threading.Thread(target=self.relay.run, name="skillbus-relay", daemon=True),
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

    def status(self) -> dict[str, object]:
        """Where submissions come from, what this process has done, and why it does not get on."""
        return {
            "broker": self.broker.address,
            "problem": self.consumer.problem or self.relay.problem,
            "taken": self.consumer.taken,
            "refused": self.consumer.refused,
            "replied": self.relay.replied,
        }
