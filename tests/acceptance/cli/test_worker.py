"""`skillbus worker` without queues: every kind of work, looked after."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support.program.program import wait_for
from tests.support.samples.library import write_topics
from tests.support.servers.distributed import Deployments, deployments
from workers.processes.workloads import WORKLOADS

__all__ = ["deployments"]


def test_every_workload_has_a_worker_that_is_started_again(
    deployments: Deployments, tmp_path: Path
) -> None:
    made = deployments()
    root = write_topics(tmp_path / "crafts")
    supervisor = made.skillbus.start("worker")
    with made.backend() as backend:
        try:
            wait_for(
                lambda: len(set(backend.coordinator.get_worker_queues())) == len(WORKLOADS), 90
            )
            report = made.skillbus("sync", str(root), "--until", "searchable", "--json").data
            assert report["published"] == 10
            [victim] = [pid for pid in _children(supervisor.pid) if "plan,ingest" in _command(pid)]
            os.kill(victim, signal.SIGKILL)
            wait_for(
                lambda: any(
                    "plan,ingest" in _command(pid) and pid != victim
                    for pid in _children(supervisor.pid)
                ),
                30,
            )
            workers = _children(supervisor.pid)
        finally:
            supervisor.send(signal.SIGTERM)
            assert supervisor.wait().code == 0
        assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _command(pid: int) -> str:
    path = Path(f"/proc/{pid}/cmdline")
    return path.read_text().replace("\0", " ") if path.exists() else ""
