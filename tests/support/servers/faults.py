"""Work that goes on while a test takes servers away, and what those who asked for it saw."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from config.errors import SkillbusError, TransientError
from skills.events import QueryAsked, SourceChanged
from tests.support.program.program import ForkServer, Skillbus, wait_for
from tests.support.program.snapshot import NOTHING_LEFT, differences, leftovers
from tests.support.samples.library import TOPICS, Folder, write_skill
from tests.support.servers.distributed import TOGETHER, Distributed
from workers.backend.distributed import DistributedBackend

LIMIT = 90.0
"""Seconds after which a test gives up waiting for everything to work again. The time depends
on the machine; it is printed, and the documentation has figures."""

PATIENT, HASTY = 10.0, 4.0
"""Seconds that workers and clients wait for one call to a server: the default, and a short one."""

QUERY_SECONDS = 60.0
"""Several times what a call to a server may take, so that a query goes on without it."""

LOST_SECONDS = 15.0
"""The same where no server is away, but a query may be lost with the worker that has taken it: its
reader waits as long for the answer."""

AWAY = "did not answer"
"""Part of every reason in `degraded` for a server that is away."""


@dataclass
class Seen:
    """What readers got: whole bundles, bundles from what was left, errors."""

    whole: int = 0
    degraded: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0

    def __str__(self) -> str:
        counts = (
            f"{self.whole} whole, {self.degraded.total()} degraded, {self.errors.total()} errors"
        )
        return f"{counts}, slowest {self.slowest:.1f} s"


class Traffic:
    """A producer that changes a folder and says so, and a reader that asks; until stopped.

    accepted: ids of events that were acknowledged. broken: what no client should ever see.
    query_seconds: how long the reader waits for an answer.
    """

    def __init__(self, arena: Arena, query_seconds: float = QUERY_SECONDS) -> None:
        self.accepted: list[str] = []
        self.refused: Counter[str] = Counter()
        self.seen = Seen()
        self.broken: list[str] = []
        self._arena = arena
        self._query_seconds = query_seconds
        self._folder = arena.folder
        self._seeds = (arena.chance.random(), arena.chance.random())
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,))
            for work in (self._change, self._ask)
        ]

    def __enter__(self) -> Traffic:
        """Begin."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End, whatever the servers do."""
        self.stop()

    def stop(self) -> None:
        """Wait until producer and reader have ended."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _guarded(self, work: Callable[[DistributedBackend], None]) -> None:
        try:
            with self._arena.backend(self._query_seconds) as backend:
                work(backend)
        except Exception as error:  # the test fails with it
            self.broken.append(f"{work.__name__}: {type(error).__name__}: {error}")

    def _change(self, backend: DistributedBackend) -> None:
        chance = random.Random(self._seeds[0])
        while not self._stopping.wait(chance.uniform(0.3, 1.2)):
            self._folder.change(1)
            try:
                self.accepted.append(backend.submit(change_of(self._folder.root), "tests"))
            except TransientError as error:
                self.refused[str(error)] += 1

    def _ask(self, backend: DistributedBackend) -> None:
        chance = random.Random(self._seeds[1])
        while not self._stopping.wait(chance.uniform(0.1, 0.4)):
            task = TOPICS[chance.choice(sorted(TOPICS))]
            started = time.monotonic()
            try:
                bundle = backend.answer_query(QueryAsked(task=task), "tests")
            except TransientError as error:
                self.seen.errors[str(error)] += 1
            else:
                lacking = lacks(bundle)
                self.seen.degraded.update(lacking[:1])
                self.seen.whole += not lacking
            self.seen.slowest = max(self.seen.slowest, time.monotonic() - started)


def lacks(bundle: dict[str, Any]) -> list[str]:
    """What a bundle had to do without because a server was away; sections that are not embedded
    yet are no such thing."""
    return [one for one in bundle["degraded"] if AWAY in one]


def change_of(root: Path) -> SourceChanged:
    """The event that a folder of skills may have changed."""
    return SourceChanged(source_id=root.name, root=str(root))


class Arena:
    """A distributed deployment and an embedded one, fed from the same folder.

    own: settings of the workers alone, as variables.
    """

    def __init__(
        self, distributed: Distributed, server: ForkServer, base: Path, seed: int, size: int = 20
    ) -> None:
        self.distributed = distributed
        self.folder = Folder(base / "lib", seed, size)
        self.probes = base / "probes"
        self.chance = random.Random(seed)
        self.timeout = 0.0
        self.own: dict[str, str] = {}
        self.embedded = Skillbus(server, base / "embedded")
        self._probes = 0

    @contextmanager
    def traffic(self, query_seconds: float = QUERY_SECONDS) -> Iterator[Traffic]:
        """Traffic around the fault in the body; afterwards nothing may be lost or there twice.

        The body has to leave every server working.
        """
        with Traffic(self, query_seconds) as traffic:
            yield traffic
        assert not traffic.broken, traffic.broken
        self.check(traffic.accepted)

    def sync_embedded(self) -> None:
        """Bring the embedded deployment to where the folders are."""
        for root in (self.folder.root, self.probes):
            result = self.embedded.start("sync", str(root)).wait()
            assert result.code in (0, 4), result.err

    @contextmanager
    def backend(self, query_seconds: float = QUERY_SECONDS) -> Iterator[DistributedBackend]:
        """A channel with as much patience as the workers have."""
        settings = self.distributed.settings
        servers = settings.servers.model_copy(update={"timeout_seconds": self.timeout})
        workers = settings.workers.model_copy(update={"query_seconds": query_seconds})
        with DistributedBackend(
            settings.model_copy(update={"servers": servers, "workers": workers})
        ) as backend:
            yield backend

    def use(self, timeout: float) -> None:
        """Have all workers run, with this patience."""
        if timeout != self.timeout:
            self.distributed.stop()
            self.timeout = timeout
        gone = set(TOGETHER) - set(self.distributed.workers)
        if gone:
            self.launch(*gone)
            self.distributed.wait_ready(*gone)

    def launch(self, *workloads: str) -> None:
        """Start workers and return while they start."""
        for name in workloads:
            patience = {"SKILLBUS_SERVERS__TIMEOUT_SECONDS": str(self.timeout)}
            self.distributed.launch(name, **patience, **self.own)

    def wait_working(self, seconds: float = LIMIT) -> float:
        """Seconds until a new skill is taken in and found by a query that lacks nothing.

        It may take longer where the machine has more to do than it can.
        """
        seconds *= max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        started = time.monotonic()
        self._probes += 1
        word = f"probe{self._probes}quux"
        path = f"lathe-{self._probes}"
        write_skill(self.probes, path, f"Handle the {word} of a lathe")
        trouble = "nothing tried"
        with self.backend() as backend:
            accepted = False
            while time.monotonic() - started < seconds:
                try:
                    if not accepted:
                        backend.submit(change_of(self.probes), "tests")
                        accepted = True
                    bundle = backend.answer_query(QueryAsked(task=f"handle the {word}"), "tests")
                except SkillbusError as error:
                    trouble = str(error)
                else:
                    found = [skill["skill_id"] for skill in bundle["skills"]]
                    if f"{self.probes.name}:{path}" in found and not lacks(bundle):
                        return time.monotonic() - started
                    trouble = f"found {found}, degraded {bundle['degraded']}"
                time.sleep(0.1)
        raise AssertionError(f"not working again after {seconds} s: {trouble}\n{self.logs()}")

    def check(self, accepted: list[str]) -> float:
        """Hold the deployment against the embedded one; seconds until all was carried out."""
        started = time.monotonic()
        distributed = self.distributed
        with distributed.backend() as backend:
            # what came last may have been refused
            last = backend.submit(change_of(self.folder.root), "tests")
            distributed.wait_done(2 * LIMIT)
            seconds = time.monotonic() - started
            states = backend.journal.get_job_states([*accepted, last])
            assert set(states) == {*accepted, last}
            assert set(states.values()) == {("done", "")}, states
            self.sync_embedded()
            backend.send_maintenance()
            wait_for(lambda: self._settled(backend), LIMIT)
        different = differences(distributed.settings, self.embedded.home)
        assert not different, different
        return seconds

    def _settled(self, backend: DistributedBackend) -> bool:
        left = leftovers(self.distributed.settings)
        if left != NOTHING_LEFT or backend.journal.count_open_jobs("query"):
            backend.send_maintenance()
            time.sleep(0.3)
            return False
        return True

    def logs(self) -> str:
        """The last lines of every worker."""
        texts = (
            f"{name}: {worker.process.text('err')[-3000:]}"
            for name, worker in self.distributed.workers.items()
        )
        return "\n---\n".join(texts)
