"""Ports of the loopback interface."""

from __future__ import annotations

import random
import socket
from collections.abc import Set as AbstractSet

from deploy.stack.asking import HOST
from deploy.stack.errors import StackError

PORTS = range(20_000, 32_000)
"""Range of chosen ports, below the ephemeral ports of Linux, so that the port of a restarted server
is still free."""


def problem_with(port: int) -> str | None:
    """Return why no program can listen on a port now; None if it is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            return error.strerror
    return None


def free_port(taken: AbstractSet[int] = frozenset()) -> int:
    """Return a free port that is not in `taken`; raises StackError if there is none."""
    for port in random.sample(PORTS, len(PORTS)):
        if port not in taken and problem_with(port) is None:
            return port
    raise StackError(f"no port from {PORTS.start} to {PORTS.stop - 1} is free on {HOST}")
