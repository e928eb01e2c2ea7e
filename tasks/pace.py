"""How fast a stage goes in this process, so that none begins what it cannot finish."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
Clock = Callable[[], float]

_NEWEST = 0.3
_FORGOTTEN = 0.9


class OutOfTimeError(Exception):
    """What is left of a stage would not be done in its time. Says what was measured."""


class Pace:
    """Seconds a unit of work takes, learned from the work; threads may share one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds: float | None = None

    def expect(self, units: float) -> float | None:
        """Seconds that so many units will take; None before the first was measured."""
        with self._lock:
            return None if self._seconds is None else self._seconds * units

    def note(self, units: float, seconds: float) -> None:
        """Take in a measurement: a moving mean, which one slow batch does not turn."""
        if units <= 0:
            return
        with self._lock:
            seen = seconds / units
            before = seen if self._seconds is None else self._seconds
            self._seconds = before + _NEWEST * (seen - before)

    def relax(self) -> None:
        """Expect a little less: a stage that is only ever skipped would never be measured again."""
        with self._lock:
            if self._seconds is not None:
                self._seconds *= _FORGOTTEN


class Budget:
    """The time of one run of a stage, with the pace it goes at."""

    def __init__(self, pace: Pace, seconds: float, clock: Clock = time.monotonic) -> None:
        self._pace = pace
        self._seconds = seconds
        self._clock = clock
        self._end = clock() + seconds

    def batches(
        self, items: Sequence[T], units: Sequence[float], size: int
    ) -> Iterator[Sequence[T]]:
        """Batches of the items, each measured while the caller works on it.

        units: the work in each item, (len(items),). The first batch of a pace that is not known
        is one item. Raises OutOfTimeError before a batch when what is left would take too long.
        """
        start = 0
        while start < len(items):
            left = self._expect(sum(units[start:]))
            count = size if left is not None else 1
            began = self._clock()
            yield items[start : start + count]
            self._pace.note(sum(units[start : start + count]), self._clock() - began)
            start += count

    def _expect(self, units: float) -> float | None:
        expected = self._pace.expect(units)
        left = self._end - self._clock()
        if left <= 0 or (expected is not None and expected > left):
            self._pace.relax()
            need = self._seconds - left + (expected or 0.0)
            raise OutOfTimeError(f"{1000 * need:.0f} ms needed, {1000 * self._seconds:.0f} allowed")
        return expected
