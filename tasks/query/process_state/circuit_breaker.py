"""Circuit breakers: after a server failed, calls to it fail at once for a few seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from config.errors import TransientError
from graph.records import SourceAccess

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
        self._make_error: Callable[[], TransientError] = TransientError

    def call(self, work: Callable[[], T]) -> T:
        """Return the result of `work`.

        Raises TransientError if `work` does, and, without calling `work`, the same error while the
        breaker is open.
        """
        with self._lock:
            if time.monotonic() < self._open_until:
                raise self._make_error()
        try:
            return work()
        except TransientError as error:
            with self._lock:
                self._open_until = time.monotonic() + _OPEN_SECONDS
                # Not the error itself, whose traceback holds all data of its query.
                self._make_error = partial(
                    type(error), str(error), public_message=error.public_message
                )
            raise


@dataclass(slots=True)
class CircuitBreakers:
    """The breakers of the two servers that a query reads from.

    last_access: sources and their groups as this process read them last, for queries while the
    catalog does not answer; from the same moment as the pointers that are used then.
    """

    index: CircuitBreaker = field(default_factory=CircuitBreaker)
    graph: CircuitBreaker = field(default_factory=CircuitBreaker)
    last_access: SourceAccess | None = None
