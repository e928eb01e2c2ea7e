"""How fast a stage goes in this process, so that none begins what it cannot finish."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import TypeVar

T = TypeVar("T")
Clock = Callable[[], float]

_REMEMBERED = 9


class TimeBudgetExceededError(Exception):
    """What is left of a stage would not be done in its time. Says what was measured."""


class Throughput:
    """Seconds a unit of work takes, learned from the work; threads may share one.

    The median of the latest measurements: one batch that had to wait for the processor does not
    turn it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: deque[float] = deque(maxlen=_REMEMBERED)

    def estimate_seconds(self, units: float) -> float | None:
        """Seconds that so many units will take; None before the first was measured."""
        with self._lock:
            return median(self._seen) * units if self._seen else None

    def record(self, units: float, seconds: float) -> None:
        """Take in a measurement."""
        if units > 0:
            with self._lock:
                self._seen.append(seconds / units)

    def forget_slowest(self) -> None:
        """Forget the slowest: a stage that is only ever skipped would never be measured again."""
        with self._lock:
            if self._seen:
                self._seen.remove(max(self._seen))


class TimeBudget:
    """The time of one run of a stage, with the pace it goes at."""

    def __init__(
        self, throughput: Throughput, seconds: float, clock: Clock = time.monotonic
    ) -> None:
        self._throughput = throughput
        self._seconds = seconds
        self._clock = clock
        self._end = clock() + seconds

    def iter_batches(
        self, items: Sequence[T], units: Sequence[float], size: int, trial_size: int
    ) -> Iterator[Sequence[T]]:
        """Batches of the items, each measured while the caller works on it.

        units: the work in each item, (len(items),). trial: size of the batch that measures a
        pace that is not known. Raises OutOfTimeError before a batch when what is left would take
        too long.
        """
        start = 0
        while start < len(items):
            left = self._expect(sum(units[start:]))
            count = size if left is not None else trial_size
            began = self._clock()
            yield items[start : start + count]
            self._throughput.record(sum(units[start : start + count]), self._clock() - began)
            start += count

    def _expect(self, units: float) -> float | None:
        expected = self._throughput.estimate_seconds(units)
        left = self._end - self._clock()
        if left <= 0 or (expected is not None and expected > left):
            self._throughput.forget_slowest()
            need = self._seconds - left + (expected or 0.0)
            raise TimeBudgetExceededError(
                f"{1000 * need:.0f} ms needed, {1000 * self._seconds:.0f} allowed"
            )
        return expected
