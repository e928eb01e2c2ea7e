"""Kills in rotation, and the times in which something was down."""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import dataclass

from tests.bench.soak.deployment import DOWN_SECONDS, GATEWAY, WORKER, Deployment

SETTLE_SECONDS = 20.0
"""After a process works again: what came meanwhile waits in the queues, and a Java server that has
just started is slow. The page about faults has recovery times of up to 22 s."""

_FIRST = ("redis", "worker-ingest", "elasticsearch", GATEWAY, "neo4j", "worker-query")
"""Servers in turn with processes of skillbus, so that a short run has some of each."""


@dataclass(frozen=True)
class Outage:
    """A process from its kill until it works again, in seconds since the start of the run."""

    name: str
    begin: float
    end: float

    def covers(self, begin: float, end: float) -> bool:
        """Whether it overlaps a span of time, with the time that clients take to settle."""
        return begin < self.end + SETTLE_SECONDS and end > self.begin


class Killer(threading.Thread):
    """Kills one process every so many seconds and starts it again, until stopped."""

    def __init__(self, deployment: Deployment, seconds: float, started: float) -> None:
        super().__init__(name="killer")
        self.outages: list[Outage] = []
        self.error: BaseException | None = None
        self._deployment = deployment
        self._seconds = seconds
        self._run_begin = started
        self._stopping = threading.Event()

    def run(self) -> None:
        """Kill at each multiple of the interval; one that comes while something is down waits."""
        try:
            for number, name in enumerate(itertools.cycle(self.rotation()), 1):
                due = self._run_begin + number * self._seconds
                if self._stopping.wait(max(0.0, due - time.monotonic())):
                    return
                self._kill(name)
        except BaseException as error:  # the run fails with it
            self.error = error

    def rotation(self) -> list[str]:
        """Every process, in the order in which they are killed."""
        workers = [f"{WORKER}{one.name}" for one in self._deployment.workloads()]
        return [*_FIRST, *(name for name in workers if name not in _FIRST)]

    def _kill(self, name: str) -> None:
        begin = time.monotonic() - self._run_begin
        self._deployment.kill(name)
        time.sleep(DOWN_SECONDS)
        self._deployment.start_again(name)
        self.outages.append(Outage(name, begin, time.monotonic() - self._run_begin))

    def stop(self) -> None:
        """Kill no more, and wait until all is up."""
        self._stopping.set()
        self.join()
