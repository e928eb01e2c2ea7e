"""Whether the holder of a lock in Redis is dead."""

from __future__ import annotations

import os
import subprocess
import sys

from tasks.coordination.redis_lock import _is_dead

_ASK = """
import os, sys
from tasks.coordination.redis_lock import _is_dead

if os.geteuid() == 0:
    os.setuid(65534)  # root may signal every process
print(_is_dead(sys.argv[1], "host-1"))
"""


def test_a_process_is_dead_when_it_has_ended() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert _is_dead(f"host-1|{ended.pid}|ab", "host-1")
    assert not _is_dead(f"host-2|{ended.pid}|ab", "host-1")
    assert not _is_dead(f"host-1|{os.getpid()}|ab", "host-1")


def test_a_process_of_another_user_is_not_dead() -> None:
    asked = [sys.executable, "-c", _ASK, "host-1|1|ab"]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert answer.stdout == "False\n", answer.stderr
