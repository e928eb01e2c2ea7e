"""Measured durations of stages, and time budgets that stop a stage before it would exceed them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import TypeVar

T = TypeVar("T")
Clock = Callable[[], float]

_SAMPLES = 9


class TimeBudgetExceededError(Exception):
    """The rest of a stage would exceed its time budget; the message says how long it would take."""


class DurationEstimate:
    """Estimate of the seconds that work takes, measured per unit during the work; thread-safe.

    The median of the last 9 measurements, so that one batch that waited for the processor does
    not change it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: deque[float] = deque(maxlen=_SAMPLES)

    def estimate_seconds(self, units: float) -> float | None:
        """Return the seconds for this many units; None before the first measurement."""
        with self._lock:
            return median(self._samples) * units if self._samples else None

    def record(self, units: float, seconds: float) -> None:
        """Add a measurement."""
        if units > 0:
            with self._lock:
                self._samples.append(seconds / units)

    def forget_slowest(self) -> None:
        """Drop the slowest measurement: a stage that is always skipped would never be measured
        again."""
        with self._lock:
            if self._samples:
                self._samples.remove(max(self._samples))


class StageDurations:
    """The median of the last durations of each stage; thread-safe."""

    def __init__(self) -> None:
        self._measured: dict[str, DurationEstimate] = {}

    def record(self, milliseconds: Mapping[str, float]) -> None:
        """Add the durations of the stages of one query."""
        for stage, duration in milliseconds.items():
            self._measured.setdefault(stage, DurationEstimate()).record(1.0, duration / 1000)

    def estimate_seconds(self, stages: Iterable[str]) -> float:
        """Return the seconds that these stages take together; a stage that was not measured counts
        0."""
        measured = (self._measured.get(stage) for stage in stages)
        return sum(one.estimate_seconds(1.0) or 0.0 for one in measured if one is not None)

    def forget_slowest(self, stage: str) -> None:
        """Drop the slowest measurement: a stage that is always left out would never be measured
        again."""
        if (measured := self._measured.get(stage)) is not None:
            measured.forget_slowest()


class TimeBudget:
    """The time that one run of a stage may take."""

    def __init__(
        self, estimate: DurationEstimate, seconds: float, clock: Clock = time.monotonic
    ) -> None:
        self._estimate = estimate
        self._seconds = seconds
        self._clock = clock
        self._end = clock() + seconds

    def iter_batches(
        self, items: Sequence[T], units: Sequence[float], size: int, trial_size: int
    ) -> Iterator[Sequence[T]]:
        """Yield batches of `size` items, each timed while the caller works on it.

        units: the work in each item, (len(items),). trial_size: size of the first batch while no
        duration is known. Raises TimeBudgetExceededError before a batch when the remaining items
        would take longer than the remaining time.
        """
        start = 0
        while start < len(items):
            expected = self._expect_in_time(sum(units[start:]))
            count = size if expected is not None else trial_size
            started = self._clock()
            yield items[start : start + count]
            self._estimate.record(sum(units[start : start + count]), self._clock() - started)
            start += count

    def _expect_in_time(self, units: float) -> float | None:
        expected = self._estimate.estimate_seconds(units)
        left = self._end - self._clock()
        if left <= 0 or (expected is not None and expected > left):
            self._estimate.forget_slowest()
            need = self._seconds - left + (expected or 0.0)
            raise TimeBudgetExceededError(
                f"{1000 * need:.0f} ms needed, {1000 * self._seconds:.0f} allowed"
            )
        return expected
