"""Circuit breakers: after a server failed, calls to it fail at once for a few seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from config.errors import TransientError

T = TypeVar("T")

_OPEN_SECONDS = 3.0


class CircuitBreaker:
    """Guards calls to one server; thread-safe.

    A failed call opens the breaker for 3 seconds, in which every other call fails at once. So only
    one query at a time waits for a server that hangs.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open_until = 0.0
        self._reason = ""

    def call(self, work: Callable[[], T]) -> T:
        """Return the result of `work`.

        Raises TransientError if `work` does, and, without calling `work`, while the breaker is
        open.
        """
        with self._lock:
            if time.monotonic() < self._open_until:
                raise TransientError(self._reason)
        try:
            return work()
        except TransientError as error:
            with self._lock:
                self._open_until = time.monotonic() + _OPEN_SECONDS
                self._reason = str(error)
            raise


@dataclass(slots=True)
class CircuitBreakers:
    """The breakers of the two servers that a query reads from."""

    index: CircuitBreaker = field(default_factory=CircuitBreaker)
    graph: CircuitBreaker = field(default_factory=CircuitBreaker)
