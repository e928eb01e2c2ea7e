"""How long the workers of one machine may take to stop."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from config.settings import WorkerSettings
from tests.support.program.program import wait_for
from workers.processes import supervisor
from workers.processes.workloads import WORKLOADS

_WORKER = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])

def stop(*_):
    time.sleep(float(sys.argv[2]))
    (folder / f"{os.getpid()}.ended").touch()
    sys.exit()

signal.signal(signal.SIGTERM, stop)
(folder / f"{os.getpid()}.started").touch()
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("stop_seconds", "task_seconds", "ended"), [(0.1, 60.0, 0), (30.0, 0.5, 2)]
)
def test_workers_have_their_time_to_finish_tasks(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stop_seconds: float,
    task_seconds: float,
    ended: int,
) -> None:
    command = [sys.executable, "-c", _WORKER, str(tmp_path), str(task_seconds)]
    monkeypatch.setattr(supervisor, "skillbus_command", lambda _: command)
    monkeypatch.setattr(supervisor, "_EXIT_SECONDS", 0.0)
    monkeypatch.setattr(supervisor, "WORKLOADS", WORKLOADS[:2])

    def stop() -> None:
        wait_for(lambda: len(list(tmp_path.glob("*.started"))) == 2)
        os.kill(os.getpid(), signal.SIGTERM)

    stopping = threading.Thread(target=stop)
    stopping.start()
    assert supervisor.run_supervisor(WorkerSettings(stop_seconds=stop_seconds), [], 1) == 0
    stopping.join()
    assert len(list(tmp_path.glob("*.ended"))) == ended
