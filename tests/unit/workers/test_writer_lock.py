"""The writer lock: one process at a time, and free as soon as its holder ends."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from config.errors import TransientError, UsageError
from workers.backend.home import WriterLock


def test_one_holder_at_a_time_and_it_is_named(tmp_path: Path) -> None:
    first, second = WriterLock(tmp_path), WriterLock(tmp_path)
    first.acquire()
    with pytest.raises(UsageError, match=f"process {os.getpid()}"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_releasing_twice_or_never_taken_is_fine(tmp_path: Path) -> None:
    lock = WriterLock(tmp_path)
    lock.release()
    lock.acquire()
    lock.release()
    lock.release()


def test_a_killed_holder_frees_the_lock(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from workers.backend.home import WriterLock

        lock = WriterLock(Path(sys.argv[1]))
        lock.acquire()
        print("held", flush=True)
        sys.stdin.read()
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        lock = WriterLock(tmp_path)
        with pytest.raises(UsageError, match=f"process {process.pid}"):
            lock.acquire()
        process.kill()
        process.wait()
        lock.acquire()
        lock.release()


def test_a_lock_that_cannot_be_written_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "writer.lock").mkdir()
    with pytest.raises(TransientError, match=r"writer\.lock cannot be written: Is a directory"):
        WriterLock(tmp_path).acquire()
