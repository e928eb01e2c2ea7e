"""Slots for work that must not take all the threads in which a gateway answers requests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from config.errors import TransientError


class ThreadSlots:
    """Slots for threads. waiting: maximum of threads that wait for one."""

    def __init__(self, slots: int, waiting: int) -> None:
        self._slots = threading.Semaphore(slots)
        self._waiting = threading.Semaphore(waiting)

    @contextmanager
    def hold(self, seconds: float, problem: str) -> Iterator[None]:
        """Hold a slot; raises TransientError with the message `problem` if none is free within
        `seconds`, and at once if too many threads wait."""
        if not self._acquire(seconds):
            raise TransientError(problem)
        try:
            yield
        finally:
            self._slots.release()

    def _acquire(self, seconds: float) -> bool:
        if not self._waiting.acquire(blocking=False):
            return False
        try:
            return self._slots.acquire(timeout=seconds)
        finally:
            self._waiting.release()
