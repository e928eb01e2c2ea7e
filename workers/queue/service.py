"""Service of submissions: the threads of a process that consume messages and send replies."""

from __future__ import annotations

import threading
from typing import Self

from tasks.metrics_recorder import MetricsRecorder, NullMetrics
from workers.backend.store_backend import StoreBackend
from workers.processes.current_process import unique_process_name
from workers.queue.broker import get_submission_broker
from workers.queue.consumer import SubmissionConsumer
from workers.queue.outbox_relay import OutboxRelay
from workers.queue.recorder import MessageRecorder
from workers.queue.status_reporter import REPORT_SECONDS, ConsumerStatus, StatusReporter


class SubmissionService:
    """Context manager: inside, submissions are recorded in a deployment and replies are sent.

    The connection to the broker is made, and remade, in the background. The constructor raises
    UsageError if the settings name no broker.
    """

    def __init__(self, backend: StoreBackend, metrics: MetricsRecorder | None = None) -> None:
        self.broker = get_submission_broker(backend.settings)
        self.name = unique_process_name()
        self._stopping = threading.Event()
        metrics = metrics or NullMetrics()
        recorder = MessageRecorder(backend)
        self.consumer = SubmissionConsumer(
            recorder, self.broker, self.name, self._stopping, metrics
        )
        self.relay = OutboxRelay(backend, self.broker, self._stopping, metrics)
        self._status_reporter = StatusReporter(backend.settings.home, backend.coordinator)
        runs = {"consumer": self.consumer.run, "relay": self.relay.run, "status": self._report}
        self._threads = [
            threading.Thread(target=run, name=f"skillbus-{name}", daemon=True)
            for name, run in runs.items()
        ]

    def __enter__(self) -> Self:
        """Start the threads."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Finish the message in progress and stop the threads."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def status(self) -> ConsumerStatus:
        """Return broker, connection, counts and problem of this process."""
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
        """Return why no submissions are consumed now; empty while they are."""
        current = self.status()
        disconnected = [] if current["connected"] else ["the broker is not connected"]
        return [current["problem"]] if current["problem"] else disconnected

    def _is_running(self) -> bool:
        return all(thread.is_alive() for thread in self._threads)

    def _report(self) -> None:
        while True:
            self._status_reporter.report(self.status())
            if self._stopping.wait(REPORT_SECONDS):
                break
        self._status_reporter.clear()
