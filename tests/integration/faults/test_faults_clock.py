"""Workers whose clocks are hours off: what counts is the clock of Redis."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from skills.events import QueryAsked
from tests.support.program.program import ROOT, ForkServer, clean_environment, wait_for
from tests.support.program.snapshot import snapshot
from tests.support.servers.distributed import REST, Deployments, Distributed, deployments
from tests.support.servers.faults import LIMIT, PATIENT, Arena, Traffic

__all__ = ["deployments"]

HOURS = 2


# Python's own clock of the day, before anything is imported that takes it along; libfaketime would
# make waits of Python 3.11 hang. What measures time that passes is left alone.
ANOTHER_CLOCK = """
import sys, time
ahead, real = float(sys.argv.pop(1)), time.time
time.time = lambda: real() + ahead
time.time_ns = lambda: int(time.time() * 1e9)
from workers.cli import main
main()
"""


@contextmanager
def worker_with_clock(
    hours: int, distributed: Distributed, queues: str, folder: Path
) -> Iterator[Path]:
    """A worker whose clock is so many hours ahead; its log."""
    log = folder / f"{queues.replace(',', '-')}.log"
    command = [sys.executable, "-c", ANOTHER_CLOCK, str(hours * 3600)]
    own = {"SKILLBUS_HOME": str(folder), "PYTHONPATH": str(ROOT)}
    with log.open("wb") as output:
        worker = subprocess.Popen(
            [*command, "worker", "--queues", queues],
            env=clean_environment() | distributed.env | own,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield log
    finally:
        worker.terminate()
        code = worker.wait(120)
    assert code == 0, log.read_text()


@pytest.mark.timeout(600)
def test_clocks_that_are_hours_apart(
    deployments: Deployments,
    fork_server: ForkServer,
    tmp_path: Path,
) -> None:
    distributed = deployments()
    arena = Arena(distributed, fork_server, tmp_path, random.randrange(1 << 30), size=12)
    arena.timeout = PATIENT
    distributed.start(REST)
    with (
        worker_with_clock(HOURS, distributed, "plan,ingest", tmp_path) as ahead,
        worker_with_clock(-HOURS, distributed, "query", tmp_path) as behind,
    ):
        wait_for(lambda: all("worker ready" in log.read_text() for log in (ahead, behind)), 120)
        arena.wait_working()
        with Traffic(arena) as traffic:
            time.sleep(3.0)
            arena.wait_working()
        assert not traffic.broken
        assert not traffic.seen.errors
        with distributed.backend() as backend, distributed.redis() as client:
            began = client.time()[0]
            query_id = backend.submit_query(QueryAsked(task="fire a kiln"), "tests")
            job = backend.journal.get_job(query_id)
            assert began <= job.accepted <= client.time()[0] + 1
            assert job.expires_in_seconds is not None
            assert 0 < job.expires_in_seconds <= distributed.settings.workers.query_seconds
            wait_for(lambda: backend.journal.get_job(query_id).state == "done", LIMIT)
            distributed.wait_done(LIMIT)
            assert backend.journal.count_dead_letters() == 0
            latest = max(entry.updated for entry in backend.graph.get_entries())
            assert latest > time.time() + HOURS * 1800, "that worker had the clock of this machine"
            arena.sync_embedded()
            assert snapshot(distributed.settings) == snapshot(arena.embedded.home)
        logged = (
            distributed.workers[REST].process.text("err") + ahead.read_text() + behind.read_text()
        )
        # A wrong clock would have every look find every task dead. On a busy machine one whose
        # worker is late with a heartbeat is sent again now and then.
        resent = [line for line in logged.splitlines() if "of a dead worker sent again" in line]
        assert len(resent) < len(traffic.accepted), resent
