"""Memory and open files of every process, and how much work waits, every few seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from config.errors import SkillbusError
from tasks.broker.redis_connection import connect
from tasks.journal.redis import RedisJournal
from tests.bench.soak.deployment import Deployment
from tests.bench.soak.progress import get_unfinished
from tests.bench.soak.traffic import Tally
from workers.backend.distributed import DistributedBackend

SAMPLE_SECONDS = 5.0
AUDIT_SECONDS = 15.0
ORPHAN_SECONDS = 60.0
"""Time in which children of a killed worker are to end: they finish their task before."""

_KB = 1024
_MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Sample:
    """One process at one time. age: seconds since it was first seen; memory in MB."""

    at: float
    role: str
    pid: int
    age: float
    rss: float
    pss: float
    anonymous: float
    handles: int


class Watcher(threading.Thread):
    """Looks at all processes and at the work that waits, and follows accepted events."""

    def __init__(self, deployment: Deployment, tally: Tally, started: float) -> None:
        super().__init__(name="watcher")
        self.samples: list[Sample] = []
        self.backlog: list[tuple[float, dict[str, int]]] = []
        self.done = 0
        self.failed: dict[str, str] = {}
        self.orphans: dict[int, str] = {}
        self.error: BaseException | None = None
        self._deployment = deployment
        self._tally = tally
        self._run_begin = started
        self._stopping = threading.Event()
        self._seen: dict[tuple[int, float], tuple[float, str]] = {}
        self._audited = started
        self._journal = RedisJournal(
            connect(deployment.settings.servers), deployment.settings.servers
        )

    def run(self) -> None:
        """Look until stopped."""
        try:
            with DistributedBackend(self._deployment.settings) as backend:
                while not self._stopping.wait(SAMPLE_SECONDS):
                    self._deployment.restart_ended()
                    self._look()
                    self._count(backend)
                    if time.monotonic() - self._audited > AUDIT_SECONDS:
                        self.audit()
        except BaseException as error:  # the run fails with it
            self.error = error

    def stop(self) -> None:
        """Look no more."""
        self._stopping.set()
        self.join()

    def _count(self, backend: DistributedBackend) -> None:
        try:
            left = get_unfinished(backend, sections=self._deployment.sections)
        except SkillbusError:
            return  # a server is down
        self.backlog.append((self._now(), left))

    def audit(self) -> None:
        """Look up the accepted events that had not ended at the last audit."""
        ids = list(self._tally.accepted)
        try:
            states = self._journal.get_job_states(ids)
        except SkillbusError:
            return  # at the next audit
        self._audited = time.monotonic()
        for one in ids:
            state, reason = states.get(one, ("unknown to the journal", ""))
            if state == "accepted":
                continue
            del self._tally.accepted[one]
            if state == "done":
                self.done += 1
            else:
                self.failed[one] = f"{state} {reason}".strip()

    def _now(self) -> float:
        return time.monotonic() - self._run_begin

    def _look(self) -> None:
        now = self._now()
        seen = set()
        for role, process in self._list_processes():
            try:
                born = (process.pid, process.create_time())
                first, _ = self._seen.setdefault(born, (now, role))
                seen.add(born)
                self.samples.append(_measure(process, role, now, now - first))
            except (psutil.Error, OSError):
                continue  # it has just ended
        self._find_orphans(seen)

    def _find_orphans(self, seen: set[tuple[int, float]]) -> None:
        """Note processes that run though the worker that started them is gone."""
        for born, (_, role) in list(self._seen.items()):
            if born in seen:
                continue
            try:
                process = psutil.Process(born[0])
                alive = process.create_time() == born[1] and process.status() != "zombie"
            except psutil.Error:
                alive = False
            if not alive:
                del self._seen[born]
                self.orphans.pop(born[0], None)
            else:
                self.orphans.setdefault(born[0], f"{role}, since {self._now():.0f} s")

    def list_old_orphans(self) -> list[str]:
        """Processes that outlived their worker by more than `ORPHAN_SECONDS`."""
        now = self._now()
        return [
            f"{pid} of {text}"
            for pid, text in self.orphans.items()
            if now - float(text.split()[-2]) > ORPHAN_SECONDS
        ]

    def _list_processes(self) -> Iterator[tuple[str, psutil.Process]]:
        for name, pid in self._deployment.pids().items():
            try:
                process = psutil.Process(pid)
                children = process.children(recursive=True)
            except psutil.Error:
                continue
            yield name, process
            for child in children:
                yield f"{name} child", child


def _measure(process: psutil.Process, role: str, now: float, age: float) -> Sample:
    fields = {}
    for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        fields[name] = int(rest.split()[0]) * _KB / _MEGABYTE
    return Sample(
        now,
        role,
        process.pid,
        age,
        fields["Rss"],
        fields["Pss"],
        fields.get("Pss_Anon", fields["Anonymous"]),
        process.num_fds(),
    )
