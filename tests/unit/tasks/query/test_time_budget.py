"""Time budgets: a stage starts only what it can finish."""

from __future__ import annotations

import pytest

from tasks.query.process_state.durations import (
    DurationEstimate,
    TimeBudget,
    TimeBudgetExceededError,
)


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def run(
    budget: TimeBudget, clock: Clock, items: int, seconds_each: float, size: int = 4
) -> list[int]:
    """Sizes of the batches that ran."""
    sizes = []
    for batch in budget.iter_batches(list(range(items)), [1.0] * items, size, trial_size=1):
        sizes.append(len(batch))
        clock.now += seconds_each * len(batch)
    return sizes


def test_what_fits_is_done_in_batches_after_a_trial() -> None:
    clock, estimate = Clock(), DurationEstimate()
    assert run(TimeBudget(estimate, 1.0, clock), clock, 10, 0.01) == [1, 4, 4, 1]
    assert estimate.estimate_seconds(10) == pytest.approx(0.1)
    assert run(TimeBudget(estimate, 1.0, clock), clock, 10, 0.01) == [4, 4, 2]


def test_without_a_known_duration_the_first_batch_is_one_item() -> None:
    clock, estimate = Clock(), DurationEstimate()
    budget = TimeBudget(estimate, 1.0, clock)
    with pytest.raises(TimeBudgetExceededError, match="2000 ms needed, 1000 allowed"):
        run(budget, clock, 10, 0.2)
    assert clock.now == pytest.approx(100.2)


def test_nothing_is_started_that_would_not_finish() -> None:
    clock, estimate = Clock(), DurationEstimate()
    estimate.record(1, 0.2)
    with pytest.raises(TimeBudgetExceededError):
        run(TimeBudget(estimate, 1.0, clock), clock, 10, 0.2)
    assert clock.now == 100.0


def test_a_stage_that_slows_down_stops_between_batches() -> None:
    clock, estimate = Clock(), DurationEstimate()
    estimate.record(1, 0.01)
    with pytest.raises(TimeBudgetExceededError):
        run(TimeBudget(estimate, 0.5, clock), clock, 40, 0.05)
    assert clock.now < 100.0 + 0.5 + 4 * 0.05


def test_one_slow_batch_does_not_change_the_estimate() -> None:
    estimate = DurationEstimate()
    for seconds in (0.01, 0.01, 3.0, 0.01, 0.01):
        estimate.record(1, seconds)
    assert estimate.estimate_seconds(1) == pytest.approx(0.01)


def test_a_stage_that_was_skipped_is_measured_again_some_time() -> None:
    clock, estimate = Clock(), DurationEstimate()
    for _ in range(9):
        estimate.record(1, 5.0)
    skipped = 0
    while True:
        try:
            assert run(TimeBudget(estimate, 1.0, clock), clock, 4, 0.01)
            break
        except TimeBudgetExceededError:
            skipped += 1
    assert skipped == 9


def test_without_time_nothing_is_started() -> None:
    clock = Clock()
    with pytest.raises(TimeBudgetExceededError):
        run(TimeBudget(DurationEstimate(), 0.0, clock), clock, 1, 0.0)


def test_nothing_to_do_needs_no_time() -> None:
    clock = Clock()
    assert run(TimeBudget(DurationEstimate(), 0.0, clock), clock, 0, 0.0) == []
