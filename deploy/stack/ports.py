"""Ports of the loopback interface."""

from __future__ import annotations

import random
import socket
from collections.abc import Set as AbstractSet

from deploy.stack.asking import HOST
from deploy.stack.errors import StackError

PORTS = range(20_000, 32_000)
"""Ports to choose from: below those that Linux gives to outgoing connections, so that a server
which starts again finds its own free."""


def problem_with(port: int) -> str | None:
    """Why nothing can listen on a port now; None when it is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            return error.strerror
    return None


def free_port(taken: AbstractSet[int] = frozenset()) -> int:
    """A port that is free and not in `taken`. Raises StackError where there is none."""
    for port in random.sample(PORTS, len(PORTS)):
        if port not in taken and problem_with(port) is None:
            return port
    raise StackError(f"no port from {PORTS.start} to {PORTS.stop - 1} is free on {HOST}")
