"""Consumer and relay of a process, each a thread."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from tasks.metrics_recorder import MetricsRecorder, NullMetrics
from workers.backend.store_backend import StoreBackend
from workers.processes.process_name import unique_process_name
from workers.queue.broker import get_submission_broker
from workers.queue.consumer import SubmissionConsumer
from workers.queue.outbox_relay import OutboxRelay
from workers.queue.recorder import MessageRecorder
from workers.queue.status_reporter import REPORT_SECONDS, ConsumerStatus, StatusReporter


class SubmissionService:
    """Takes submissions into a deployment and sends replies, while it is entered.

    The broker is connected to in the background, however long that takes. Raises UsageError at
    once when the settings name none.
    """

    def __init__(self, backend: StoreBackend, measures: MetricsRecorder | None = None) -> None:
        self.broker = get_submission_broker(backend.settings)
        self.name = unique_process_name()
        self._stopping = threading.Event()
        measures = measures or NullMetrics()
        recorder = MessageRecorder(backend)
        self.consumer = SubmissionConsumer(
            recorder, self.broker, self.name, self._stopping, measures
        )
        self.relay = OutboxRelay(backend, self.broker, self._stopping, measures)
        self._status_reporter = StatusReporter(backend)
        runs = {"consumer": self.consumer.run, "relay": self.relay.run, "status": self._report}
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

    def status(self) -> ConsumerStatus:
        """Where submissions come from, what this process has done, and why it does not get on."""
        return {
            "consumer": self.name,
            "broker": self.broker.address,
            "connected": self.consumer.connected.is_set() and self._is_running(),
            "problem": self.consumer.problem or self.relay.problem,
            "waiting": self.consumer.waiting,
            "recorded": self.consumer.recorded,
            "refused": self.consumer.refused,
            "replied": self.relay.replied,
            "last_message": self.consumer.last_message,
        }

    def not_ready_reasons(self) -> list[str]:
        """Why no submissions are taken now; empty while they are."""
        current = self.status()
        away = [] if current["connected"] else ["the broker is not connected"]
        return [current["problem"]] if current["problem"] else away

    def _is_running(self) -> bool:
        return all(thread.is_alive() for thread in self._threads)

    def _report(self) -> None:
        while True:
            self._status_reporter.report(self.status())
            if self._stopping.wait(REPORT_SECONDS):
                break
        self._status_reporter.clear()
