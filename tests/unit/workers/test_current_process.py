"""What a process does with what it inherited."""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import sys

import pytest

from workers.processes.current_process import detach_inherited_sockets


def test_a_child_does_not_keep_open_the_connections_that_its_parent_closes() -> None:
    context = multiprocessing.get_context("fork")
    ours, theirs = socket.socketpair()
    reading, writing = os.pipe()
    detached, done = context.Event(), context.Event()

    def work() -> None:
        detach_inherited_sockets()
        os.write(writing, b"a pipe is left")
        detached.set()
        done.wait(60)

    child = context.Process(target=work)
    child.start()
    try:
        assert detached.wait(60)
        ours.close()
        theirs.settimeout(10)
        assert theirs.recv(1) == b""
        assert os.read(reading, 100) == b"a pipe is left"
    finally:
        done.set()
        child.join()
        theirs.close()
        os.close(reading)
        os.close(writing)
    assert child.exitcode == 0


_CHILD = """
import sys
from workers.processes.current_process import stop_on_signals, stop_with_parent
with stop_on_signals() as stop_requested:
    stop_with_parent(int(sys.argv[1]))
    print("runs", flush=True)
    print("stopped" if stop_requested.wait(60) else "still runs")
"""


@pytest.mark.parametrize("parent", ["$$", "1"], ids=["ends", "has ended before"])
def test_a_worker_does_not_outlive_its_supervisor(parent: str) -> None:
    with subprocess.Popen(
        ["/bin/sh", "-c", f'"$@" {parent} & read _', "sh", sys.executable, "-c", _CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as supervisor:
        assert supervisor.stdin is not None
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == b"runs\n"
        supervisor.stdin.close()
        assert supervisor.stdout.read() == b"stopped\n"
