"""Cache of a value that takes long to find: the last value is used until a new one is found."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Generic, NamedTuple, TypeVar

from workers.monitoring.parallel_probes import run_in_thread

T = TypeVar("T")


class Found(NamedTuple, Generic[T]):
    """A value and the time at which it was found, in seconds since the epoch."""

    value: T
    at: float


class RecentValue(Generic[T]):
    """Cache of the last value of `find`, which runs in a thread, one call at a time.

    fresh_seconds: age up to which a value is returned without a call. wait_seconds: time limit for
    waiting for a new value, after which the last one is returned.
    """

    def __init__(self, find: Callable[[], T], *, fresh_seconds: float, wait_seconds: float) -> None:
        self._find = find
        self._fresh_seconds = fresh_seconds
        self._wait_seconds = wait_seconds
        self._lock = threading.Lock()
        self._pending: Future[Found[T]] | None = None
        self._last: Found[T] | None = None

    def get(self) -> Found[T] | None:
        """Return a fresh or new value, else the last one; None while there is none yet.

        Raises the error of `find` if it fails.
        """
        last = self._last
        if last is not None and time.time() - last.at < self._fresh_seconds:
            return last
        with self._lock:
            if self._pending is None or self._pending.done():
                self._pending = run_in_thread(self._find_now, "skillbus-find")
            pending = self._pending
        wait([pending], self._wait_seconds)
        return pending.result() if pending.done() else self._last

    def _find_now(self) -> Found[T]:
        self._last = found = Found(self._find(), time.time())
        return found
