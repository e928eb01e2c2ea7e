"""Plots as SVG. The same figures give the same bytes: no dates, fixed ids."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.bench.quality.figures import TITLES, Figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

STYLE: Mapping[Any, Any] = {
    "svg.hashsalt": "skillbus",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
}
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
"""Distinguishable to colour-blind readers (Okabe and Ito, 2008)."""
DASHES = {"dev": "--", "left_out": "-"}
SIZE = (6.4, 4.0)


@dataclass(frozen=True, slots=True)
class Curve:
    """Figures of a column over numbers. name: of what is shown, "" if the plot has one thing."""

    column: str
    at: Sequence[float]
    figures: Sequence[Figure]
    name: str = ""

    @property
    def label(self) -> str:
        """Its name in the legend."""
        return f"{self.name}, {TITLES[self.column]}" if self.name else TITLES[self.column]


@dataclass(frozen=True, slots=True)
class Series:
    """Figures of a column over categories; None where a category has no cases."""

    column: str
    name: str
    figures: Sequence[Figure | None]


def draw_curves(
    curves: Sequence[Curve],
    x: str,
    y: str,
    *,
    log: bool = False,
    points: bool = False,
    bars: bool = False,
) -> bytes:
    """Lines, dashed for dev, with their intervals as bands, or as bars that stand side by side.

    log: a logarithmic axis of x; bars need it.
    """
    with _styled():
        canvas, axes = _canvas(x, y)
        names = list(dict.fromkeys(curve.name for curve in curves))
        for number, curve in enumerate(curves):
            at = [place * 1.04**number for place in curve.at] if bars else curve.at
            colour = COLOURS[names.index(curve.name) % len(COLOURS)]
            values = [one["value"] for one in curve.figures]
            low = [one["low"] for one in curve.figures]
            high = [one["high"] for one in curve.figures]
            axes.plot(
                at,
                values,
                DASHES[curve.column],
                color=colour,
                label=curve.label,
                marker="o" if points else None,
                markersize=4,
            )
            if bars:
                axes.vlines(at, low, high, color=colour, linewidth=1)
            else:
                axes.fill_between(at, low, high, color=colour, alpha=0.12, linewidth=0)
        if log:
            axes.set_xscale("log")
            ticks = _ticks([place for curve in curves for place in curve.at], points)
            axes.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
            axes.set_xticks([], minor=True)
        if bars:
            axes.set_ylim(0, 1.02)
        axes.legend(frameon=False, loc="lower left" if bars else "best")
        return _svg(canvas)


def draw_bars(series: Sequence[Series], categories: Sequence[str], x: str, y: str) -> bytes:
    """Points with intervals over categories; hollow for dev."""
    with _styled():
        canvas, axes = _canvas(x, y)
        names = list(dict.fromkeys(one.name for one in series))
        for number, one in enumerate(series):
            colour = COLOURS[names.index(one.name) % len(COLOURS)]
            shift = (number - (len(series) - 1) / 2) * 0.12
            known = [(place, figure) for place, figure in enumerate(one.figures) if figure]
            axes.errorbar(
                [place + shift for place, _ in known],
                [figure["value"] for _, figure in known],
                yerr=[
                    [max(figure["value"] - figure["low"], 0.0) for _, figure in known],
                    [max(figure["high"] - figure["value"], 0.0) for _, figure in known],
                ],
                fmt="o",
                color=colour,
                markerfacecolor="white" if one.column == "dev" else colour,
                capsize=3,
                label=f"{one.name}, {TITLES[one.column]}",
            )
        axes.set_xticks(range(len(categories)), list(categories))
        axes.set_xlim(-0.5, len(categories) - 0.5)
        axes.set_ylim(0, 1.02)
        axes.legend(frameon=False)
        return _svg(canvas)


def draw_reliability(bins: Mapping[str, Sequence[Mapping[str, float]]]) -> bytes:
    """Share that came true against predicted probability, by column; the area is the number."""
    with _styled():
        canvas, axes = _canvas("predicted probability", "share that was right")
        axes.plot([0, 1], [0, 1], color="#999999", linewidth=1)
        for number, (column, rows) in enumerate(bins.items()):
            total = sum(row["count"] for row in rows)
            axes.plot(
                [row["predicted"] for row in rows],
                [row["observed"] for row in rows],
                DASHES[column],
                color=COLOURS[number],
                label=TITLES[column],
            )
            axes.scatter(
                [row["predicted"] for row in rows],
                [row["observed"] for row in rows],
                s=[max(600 * row["count"] / total, 4) for row in rows],
                color=COLOURS[number],
                alpha=0.5,
            )
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        axes.legend(frameon=False)
        return _svg(canvas)


def _styled() -> AbstractContextManager[None]:
    import matplotlib as mpl  # here and below: it takes half a second, and few need it

    return mpl.rc_context(dict(STYLE))


def _canvas(x: str, y: str) -> tuple[Canvas, Any]:
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=SIZE, layout="constrained")
    axes = canvas.subplots()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return canvas, axes


def _ticks(places: Sequence[float], points: bool) -> list[float]:
    """The places themselves for a few points, else 1, 2, 5, 10 and so on."""
    if points:
        return sorted(set(places))
    low, high = min(places), max(places)
    steps = [lead * 10.0**power for power in range(7) for lead in (1, 2, 5)]
    return [step for step in steps if low <= step <= high]


def _svg(canvas: Canvas) -> bytes:
    out = io.BytesIO()
    canvas.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue().decode()
    return "\n".join(line.rstrip() for line in text.splitlines()).encode() + b"\n"
