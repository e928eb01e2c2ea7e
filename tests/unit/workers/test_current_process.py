"""What a process does with what it inherited."""

from __future__ import annotations

import multiprocessing
import os
import socket

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
