"""Figures with intervals: computed from rows, kept as JSON, shown as cells of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NotRequired, TypedDict

import numpy as np

from workers.evaluation.intervals import Floats, bootstrap_groups

RESAMPLES = 2_000
COLUMNS = ("dev", "left_out")
TITLES = {"dev": "dev", "left_out": "left out"}
CROSS_VALIDATED = "cross-validated"
DEV_ONLY = "dev only"
EMPTY = "–"


class Figure(TypedDict):
    """A value with its 95% interval. cases: tasks or queries; groups: what is resampled.

    by: CROSS_VALIDATED for predictions of models fitted without the case's repository.
    """

    value: float
    low: float
    high: float
    cases: int
    groups: int
    by: NotRequired[str]


Pair = Mapping[str, Figure]
"""A figure by column; a column without data is missing."""


def make_figure(
    rows: Floats, groups: Sequence[str], statistic: Callable[[Floats], Floats], by: str = ""
) -> Figure:
    """A statistic of column sums; see `bootstrap_groups`."""
    value, low, high = bootstrap_groups(rows, groups, statistic, RESAMPLES)
    figure = Figure(
        value=round(value, 4),
        low=round(low, 4),
        high=round(high, 4),
        cases=len(rows),
        groups=len(set(groups)),
    )
    if by:
        figure["by"] = by
    return figure


def mean_figure(values: Sequence[float], groups: Sequence[str], by: str = "") -> Figure:
    """The mean of the values."""
    rows = np.stack([np.asarray(values, dtype=np.float64), np.ones(len(values))], axis=1)
    return make_figure(rows, groups, lambda sums: sums[:, 0] / sums[:, 1], by)


def share(value: float) -> str:
    """A share with three decimals, without the leading zero."""
    text = f"{value:.3f}"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def count(value: float) -> str:
    """A mean number without decimals."""
    return f"{value:,.0f}"


def cell(figure: Figure | None, write: Callable[[float], str] = share) -> str:
    """Value and interval; EMPTY without a figure."""
    if figure is None:
        return EMPTY
    low, high = _short(figure["low"], write), _short(figure["high"], write)
    mark = " (cv)" if figure.get("by") == CROSS_VALIDATED else ""
    return f"{write(figure['value'])} [{low}, {high}]{mark}"


def _short(value: float, write: Callable[[float], str]) -> str:
    if write is not share:
        return write(value)
    text = f"{value:.2f}"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def signed(figure: Figure | None) -> str:
    """A difference with its interval, `=` where no case changed."""
    if figure is None:
        return EMPTY
    if figure["low"] == figure["high"] == 0:
        return "="
    return f"{figure['value']:+.3f} [{figure['low']:+.2f}, {figure['high']:+.2f}]"


def pair_cells(pair: Pair, write: Callable[[float], str] = share) -> list[str]:
    """The cells of both columns; DEV_ONLY where nothing was left out."""
    dev, left_out = (pair.get(column) for column in COLUMNS)
    return [cell(dev, write), DEV_ONLY if left_out is None and dev else cell(left_out, write)]


def count_cell(pair: Pair) -> str:
    """How many cases a pair has, by column, with the number of groups in parentheses."""
    counts = [f"{pair[c]['cases']} ({pair[c]['groups']})" for c in COLUMNS if c in pair]
    return " / ".join(counts) or EMPTY


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def pair_table(
    what: str, rows: Sequence[tuple[str, Pair]], write: Callable[[float], str] = share
) -> str:
    """A table with a pair of figures in each row."""
    header = [what, "cases (groups)", *(TITLES[column] for column in COLUMNS)]
    return table(
        header, [[name, count_cell(pair), *pair_cells(pair, write)] for name, pair in rows]
    )


def wide_table(
    what: str,
    rows: Sequence[tuple[str, Mapping[str, Pair]]],
    writers: Mapping[str, Callable[[float], str]],
) -> str:
    """A Markdown table with a row per name and column of the page, and a figure per measure.

    rows: (name, pairs by measure). writers: how the figures of each measure are written, in order.
    """
    lines = []
    for name, pairs in rows:
        columns = [c for c in COLUMNS if any(c in pair for pair in pairs.values())]
        for column in columns:
            figures = [pairs.get(one, {}).get(column) for one in writers]
            first = next(figure for figure in figures if figure)
            title = TITLES[column] if "left_out" in columns else DEV_ONLY
            cells = [cell(f, write) for f, write in zip(figures, writers.values(), strict=True)]
            lines.append([name, f"{first['cases']} ({first['groups']})", title, *cells])
    return table([what, "cases (groups)", "", *writers], lines)
