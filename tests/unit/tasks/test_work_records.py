"""Counts of work: durations by bucket, and what a minute holds."""

from __future__ import annotations

import math

import pytest

from tasks.journal.work_records import build_minute, duration_bucket, find_percentile


@pytest.mark.parametrize("seconds", [0.05, 0.3, 1.0, 2.7, 60.0, 4_000.0])
def test_a_percentile_is_near_the_durations_that_were_counted(seconds: float) -> None:
    found = find_percentile({duration_bucket(seconds): 10}, 0.5)
    assert found is not None
    assert abs(math.log2(found / seconds)) <= 1 / 8


def test_percentiles_are_of_all_durations() -> None:
    ranges = {duration_bucket(1.0): 90, duration_bucket(64.0): 10}
    assert find_percentile(ranges, 0.5) == 1.0
    assert find_percentile(ranges, 0.9) == 1.0
    assert find_percentile(ranges, 0.95) == 64.0
    assert find_percentile({}, 0.5) is None


@pytest.mark.parametrize("seconds", [0.0, -3.0, 1e-9, 1e12])
def test_durations_out_of_range_are_counted_at_its_ends(seconds: float) -> None:
    assert duration_bucket(seconds) in (-20, 80)


def test_a_minute_has_its_counts_by_what_they_count() -> None:
    minute = build_minute(
        60,
        {
            ("task", "skillbus.link done"): 3,
            ("task", "skillbus.link failed"): 1,
            ("event", "done"): 2,
            ("searchable", "-4"): 7,
            ("other", "of a later version"): 1,
        },
    )
    assert (minute.tasks, minute.failed, minute.events) == ({"skillbus.link": 4}, 1, 2)
    assert minute.searchable == {-4: 7}
