"""Whether the holder of a lock in Redis is dead."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys

from tasks.coordination.redis_lock import _is_dead


def test_a_process_is_dead_when_it_has_ended() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert _is_dead(f"host-1|{ended.pid}|ab", "host-1")
    assert not _is_dead(f"host-2|{ended.pid}|ab", "host-1")
    assert not _is_dead(f"host-1|{os.getpid()}|ab", "host-1")


def test_a_process_of_another_user_is_not_dead() -> None:
    asking = multiprocessing.get_context("fork").Process(target=_exit_if_dead)
    asking.start()
    asking.join()
    assert asking.exitcode == 0


def _exit_if_dead() -> None:
    if os.geteuid() == 0:
        os.setuid(65534)  # root may signal every process
    sys.exit(_is_dead("host-1|1|ab", "host-1"))
