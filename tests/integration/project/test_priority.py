"""Embedding lowers its thread's priority, and never raises it: that would take a privilege."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import os, sys, threading
os.nice(int(sys.argv[1]))
from tasks.ingest.embed_sections import lower_thread_priority
before = os.getpriority(os.PRIO_PROCESS, 0)
lower_thread_priority()
print(before, os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads have a priority on Linux alone")
@pytest.mark.parametrize("steps", [0, 19])
def test_embedding_has_a_low_priority(steps: int) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(steps)],
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    before, after = (int(word) for word in run.stdout.split())
    assert after == max(before, 15)
