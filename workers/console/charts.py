"""Line charts for the macro `line_chart` of `charts.html`: scales, ticks and paths.

A chart is an inline SVG: it needs no script, and a table shows its values too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby

from workers.evaluation.line_plot import choose_ticks

MAX_SERIES = 6
"""Number of series for which the style sheet has distinct colours and dashes."""

SIZE = 1_000
"""Width and height of the coordinate system of paths, which is stretched to the chart."""

_MAX_TICKS = 7
_MAX_MARKED = 31
_DAY = 86_400
_TIME_STEPS = (
    *(1, 5, 10, 30, 60, 300, 600, 1_800),
    *(3_600 * hours for hours in (1, 2, 3, 6, 12)),
    *(_DAY * days for days in (1, 2, 7, 14)),
)
_MONTH_STEPS = (1, 3, 6, 12)


@dataclass(frozen=True, slots=True)
class Tick:
    """A labelled point of an axis. share: its distance from left or top, in
    per cent of the length."""

    label: str
    share: float


@dataclass(frozen=True, slots=True)
class Line:
    """A series.

    path: data of an SVG path, which restarts after each gap. dots: points of values, in per cent
    from left and top. values: one text for each row of the chart.
    """

    name: str
    path: str
    dots: Sequence[tuple[float, float]]
    values: Sequence[str]


@dataclass(frozen=True, slots=True)
class Row:
    """The values at one point of the horizontal axis.

    left, width: of the area that shows them while the pointer is over it, in per cent.
    """

    label: str
    values: Sequence[str]
    left: float
    width: float


@dataclass(frozen=True, slots=True)
class LineChart:
    """A chart to draw.

    description: the range of each series in words. x_name: of the horizontal axis. rows: all values
    as text; empty without values.
    """

    title: str
    description: str
    unit: str
    x_name: str
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    lines: Sequence[Line]
    rows: Sequence[Row]


def plot_over_time(
    title: str,
    times: Sequence[float],
    series: Mapping[str, Sequence[float | None]],
    *,
    unit: str = "",
) -> LineChart:
    """Return the chart of values over time.

    times: ascending, seconds since the epoch; shown in UTC. series: by name, a value for each time,
    None for a gap in the line. unit: of the values. Raises ValueError for more than `MAX_SERIES`
    series, or if the values do not match the times.
    """
    days = bool(times) and all(one % _DAY == 0 for one in times)
    form = "%Y-%m-%d" if days else "%Y-%m-%d %H:%M"
    labels = [datetime.fromtimestamp(one, UTC).strftime(form) for one in times]
    return _plot(title, times, labels, series, _tick_times, unit, "Time (UTC)")


def plot_over_numbers(
    title: str,
    numbers: Sequence[float],
    series: Mapping[str, Sequence[float | None]],
    *,
    x_name: str,
) -> LineChart:
    """Return the chart of values over ascending numbers, otherwise as `plot_over_time`."""
    labels = [f"{one:,.6g}" for one in numbers]
    return _plot(title, numbers, labels, series, _tick_numbers, "", x_name)


def _plot(
    title: str,
    places: Sequence[float],
    labels: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    tick_x: Callable[[float, float], Iterable[tuple[str, float]]],
    unit: str,
    x_name: str,
) -> LineChart:
    if len(series) > MAX_SERIES:
        raise ValueError(f"a chart has at most {MAX_SERIES} series, not {len(series)}")
    if any(len(values) != len(places) for values in series.values()):
        raise ValueError("each series needs a value, or None, for each place")
    known = [value for values in series.values() for value in values if value is not None]
    if not known:
        return LineChart(title, "no values", unit, x_name, (), (), (), ())
    ticks = _choose_range(known)
    decimals = _count_decimals(ticks[1] - ticks[0])
    first, last = places[0], places[-1]

    def share_x(place: float) -> float:
        return _share(place, first, last) if last > first else 50.0

    def share_y(value: float) -> float:
        return round(100.0 - _share(value, ticks[0], ticks[-1]), 2)

    lefts = [share_x(place) for place in places]
    lines = [
        _draw_line(name, lefts, values, share_y, decimals + 1) for name, values in series.items()
    ]
    return LineChart(
        title=title,
        description="; ".join(_describe(line.name, series[line.name], unit) for line in lines),
        unit=unit,
        x_name=x_name,
        x_ticks=[Tick(label, share_x(place)) for label, place in tick_x(first, last)],
        y_ticks=[Tick(_format(value, decimals), share_y(value)) for value in ticks],
        lines=lines,
        rows=list(_list_rows(labels, lefts, lines)),
    )


def _share(value: float, low: float, high: float) -> float:
    return round(100.0 * (value - low) / (high - low), 2)


def _draw_line(
    name: str,
    lefts: Sequence[float],
    values: Sequence[float | None],
    share_y: Callable[[float], float],
    decimals: int,
) -> Line:
    points = [
        None if value is None else (left, share_y(value))
        for left, value in zip(lefts, values, strict=True)
    ]
    path, dots = [], []
    for is_gap, run in groupby(points, key=lambda point: point is None):
        if is_gap:
            continue
        part = [point for point in run if point is not None]
        scale = SIZE / 100
        path.append("M" + "L".join(f"{x * scale:.0f} {y * scale:.0f}" for x, y in part))
        if len(part) == 1 or len(points) <= _MAX_MARKED:
            dots += part
    texts = ["" if value is None else _format(value, decimals) for value in values]
    return Line(name, "".join(path), dots, texts)


def _list_rows(
    labels: Sequence[str], lefts: Sequence[float], lines: Sequence[Line]
) -> Iterator[Row]:
    """Yield the rows; the area of each extends halfway to its neighbours."""
    for place, (label, left) in enumerate(zip(labels, lefts, strict=True)):
        begin = (lefts[place - 1] + left) / 2 if place else 0.0
        end = (left + lefts[place + 1]) / 2 if place + 1 < len(lefts) else 100.0
        values = [line.values[place] for line in lines]
        yield Row(label, values, round(begin, 2), round(end - begin, 2))


def _describe(name: str, values: Sequence[float | None], unit: str) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return f"{name}: no values"
    low, high, last = (f"{one:,.4g}" for one in (min(known), max(known), known[-1]))
    return f"{name}: {low} to {high}{f' {unit}' if unit else ''}, last {last}"


def _choose_range(known: Sequence[float]) -> list[float]:
    """Return the ticks of the vertical axis: round numbers including 0 that span all values."""
    low, high = min(0.0, *known), max(0.0, *known)
    if low == high:
        high = 1.0
    if all(float(one).is_integer() for one in known) and high - low < _MAX_TICKS:
        return [float(one) for one in range(int(low), int(high) + 1)]
    ticks = choose_ticks(low, high)
    step = ticks[1] - ticks[0]
    below = [ticks[0] - step] if ticks[0] > low else []
    above = [ticks[-1] + step] if ticks[-1] < high else []
    return [*below, *ticks, *above]


def _tick_numbers(first: float, last: float) -> Iterator[tuple[str, float]]:
    """Yield round numbers from `first` to `last`; the number itself if both are equal."""
    for value in choose_ticks(first, last) if last > first else [first]:
        yield f"{value:,.6g}", value


def _tick_times(first: float, last: float) -> Iterator[tuple[str, float]]:
    """Yield round times in UTC: hours and minutes, the date at the start of a day; for long spans
    the first of a month."""
    span = last - first
    step = next((one for one in _TIME_STEPS if span / one <= _MAX_TICKS), None)
    if step is None:
        yield from _tick_months(first, last)
        return
    place = math.ceil(first / step) * step
    while place <= last:
        moment = datetime.fromtimestamp(place, UTC)
        if place % _DAY == 0:
            label = f"{moment.day} {moment:%b}"
        else:
            label = moment.strftime("%H:%M" if step >= 60 else "%H:%M:%S")
        yield label, place
        place += step


def _tick_months(first: float, last: float) -> Iterator[tuple[str, float]]:
    begin, end = (datetime.fromtimestamp(one, UTC) for one in (first, last))
    months = (end.year - begin.year) * 12 + end.month - begin.month
    step = next((one for one in _MONTH_STEPS if months / one <= _MAX_TICKS), 12)
    month = begin.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    while month <= end:
        if month >= begin and (month.month - 1) % step == 0:
            yield f"{month:%b %Y}", month.timestamp()
        month = (month + timedelta(days=32)).replace(day=1)


def _count_decimals(step: float) -> int:
    """Return the number of decimals that distinguish multiples of a step."""
    return max(0, -math.floor(math.log10(step) + 1e-9))


def _format(value: float, decimals: int) -> str:
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text and decimals else text
