"""Durations of the stages of queries in this process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tasks.query.process_state.time_budget import DurationEstimate


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
