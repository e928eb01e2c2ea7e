"""Line charts: ticks, gaps, and the values as text."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from workers.console.charts import SIZE, LineChart, plot_over_numbers, plot_over_time


def at(day: int, hour: int = 0, minute: int = 0, month: int = 3, year: int = 2026) -> float:
    return datetime(year, month, day, hour, minute, tzinfo=UTC).timestamp()


def labels(chart: LineChart, axis: str) -> list[str]:
    return [tick.label for tick in getattr(chart, f"{axis}_ticks")]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 1], ["0", "1"]),
        ([3, 0], ["0", "1", "2", "3"]),
        ([0, 97], ["0", "20", "40", "60", "80", "100"]),
        ([0.0, 0.034], ["0", "0.01", "0.02", "0.03", "0.04"]),
        ([-1.5, 1.5], ["-1.5", "-1", "-0.5", "0", "0.5", "1", "1.5"]),
        ([0, 25_000], ["0", "5,000", "10,000", "15,000", "20,000", "25,000"]),
        ([0, 0], ["0", "1"]),
    ],
)
def test_the_vertical_axis_has_round_ticks_and_holds_all_values(
    values: list[float], expected: list[str]
) -> None:
    chart = plot_over_time("Rates", [at(1), at(2)], {"all": values})
    assert labels(chart, "y") == expected
    assert chart.y_ticks[0].share == 100.0
    assert chart.y_ticks[-1].share == 0.0


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (at(1, 9, 2), at(1, 9, 31), ["09:05", "09:10", "09:15", "09:20", "09:25", "09:30"]),
        (at(1, 21), at(2, 3), ["21:00", "22:00", "23:00", "2 Mar", "01:00", "02:00", "03:00"]),
        (at(1), at(7), [f"{day} Mar" for day in range(1, 8)]),
        (
            at(15, month=1),
            at(2, month=4),
            ["15 Jan", "29 Jan", "12 Feb", "26 Feb", "12 Mar", "26 Mar"],
        ),
        (at(5, month=2), at(4, year=2027), ["Apr 2026", "Jul 2026", "Oct 2026", "Jan 2027"]),
    ],
)
def test_times_have_round_ticks_in_utc(first: float, last: float, expected: list[str]) -> None:
    chart = plot_over_time("Rates", [first, last], {"all": [1, 2]})
    assert labels(chart, "x") == expected
    assert all(0 <= tick.share <= 100 for tick in chart.x_ticks)


def test_a_missing_value_is_a_gap_and_a_lone_one_a_dot() -> None:
    times = [at(1, minute=minute) for minute in range(5)]
    chart = plot_over_time("Rates", times, {"all": [1, 2, None, 4, None], "none": [None] * 5})
    line, empty = chart.lines
    assert re.fullmatch(r"M0 750L250 500M750 0", line.path)
    assert (75.0, 0.0) in line.dots
    assert line.values == ["1", "2", "", "4", ""]
    assert (empty.path, empty.dots) == ("", [])
    assert chart.description == "all: 1 to 4, last 4; none: no values"
    assert [row.label for row in chart.rows[:2]] == ["2026-03-01 00:00", "2026-03-01 00:01"]


def test_the_areas_to_point_at_cover_the_chart() -> None:
    chart = plot_over_time("Rates", [at(1), at(2), at(5)], {"all": [1, 2, 3]})
    assert sum(row.width for row in chart.rows) == pytest.approx(100)
    assert [row.left for row in chart.rows] == [0, 12.5, 62.5]


def test_numbers_are_an_axis_too() -> None:
    chart = plot_over_numbers(
        "Reliability", [0.1, 0.5, 0.9], {"seen": [0.2, 0.5, 0.8]}, x_name="Probability"
    )
    assert labels(chart, "x") == ["0.2", "0.4", "0.6", "0.8"]
    assert [tick.share for tick in chart.x_ticks] == [12.5, 37.5, 62.5, 87.5]
    assert (chart.x_name, chart.rows[0].label) == ("Probability", "0.1")


def test_one_place_is_in_the_middle() -> None:
    chart = plot_over_time("Rates", [at(1)], {"all": [10]})
    assert chart.lines[0].dots == [(50.0, 0.0)]
    assert (chart.rows[0].left, chart.rows[0].width) == (0.0, 100.0)
    assert chart.lines[0].path == f"M{SIZE // 2} 0"


@pytest.mark.parametrize("times", [[], [at(1), at(2)]])
def test_no_values_are_an_empty_chart(times: list[float]) -> None:
    chart = plot_over_time("Rates", times, {"all": [None for _ in times]})
    assert not chart.rows
    assert not chart.lines


def test_more_series_than_can_be_told_apart_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 6 series"):
        plot_over_time("Rates", [at(1)], {str(one): [1] for one in range(7)})
    with pytest.raises(ValueError, match="for each place"):
        plot_over_time("Rates", [at(1)], {"all": [1, 2]})
