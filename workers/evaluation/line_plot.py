"""Line plots as SVG, without a plotting library. Equal figures give equal bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
"""Colours that colour-blind readers can distinguish (Okabe and Ito, 2008)."""

_WIDTH, _HEIGHT = 760, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 170, 40, 50
_LEGEND = _WIDTH - _RIGHT + 12
_MAX_STEPS = 6
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Line:
    """A named line through points (x, y). colour: a number; lines of one
    colour differ in dashes."""

    name: str
    points: tuple[tuple[float, float], ...]
    colour: int
    is_dashed: bool = False


def draw_lines(title: str, x: str, y: str, lines: Sequence[Line]) -> str:
    """Return an SVG image with a legend on the right; raises ValueError without points."""
    points = [point for line in lines for point in line.points]
    if not points:
        raise ValueError("no points")
    most_x = max(at for at, _ in points) or 1.0
    low = min(value for _, value in points)
    high = max(value for _, value in points)
    margin = 0.1 * (high - low) or 0.05
    low, high = max(low - margin, 0.0), high + margin

    def across(value: float) -> float:
        return _LEFT + value / most_x * (_WIDTH - _LEFT - _RIGHT)

    def down(value: float) -> float:
        return _HEIGHT - _BOTTOM - (value - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _text(_WIDTH / 2, 20, title, "middle"),
        _text(_WIDTH / 2, _HEIGHT - 10, x, "middle"),
        f'<g transform="translate(15 {_HEIGHT / 2:.1f}) rotate(-90)">'
        f"{_text(0, 0, y, 'middle')}</g>",
    ]
    for value in choose_ticks(low, high):
        parts += [
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{down(value):.1f}" '
            f'y2="{down(value):.1f}" stroke="#dddddd"/>',
            _text(_LEFT - 6, down(value) + 4, f"{value:g}", "end"),
        ]
    for at in choose_ticks(0.0, most_x):
        parts.append(_text(across(at), _HEIGHT - _BOTTOM + 18, f"{at:g}", "middle"))
    for number, line in enumerate(lines):
        dashes = ' stroke-dasharray="5 4"' if line.is_dashed else ""
        stroke = f'stroke="{COLOURS[line.colour % len(COLOURS)]}" stroke-width="2"{dashes}'
        places = " ".join(f"{across(at):.1f},{down(value):.1f}" for at, value in line.points)
        legend = _TOP + 16 * number
        parts += [
            f'<polyline points="{places}" fill="none" {stroke}/>',
            f'<path d="M {_LEGEND} {legend - 4} h 24" {stroke}/>',
            _text(_LEGEND + 30, legend, line.name, "start"),
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def choose_ticks(low: float, high: float) -> list[float]:
    """Return round values from `low` to `high`, at most 7: multiples of 1, 2 or 5
    times a power of ten."""
    least = (high - low) / _MAX_STEPS
    power = 10.0 ** math.floor(math.log10(least))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)
    first, last = math.ceil(low / step - _ROUNDING), math.floor(high / step + _ROUNDING)
    return [float(f"{number * step:.6g}") for number in range(first, last + 1)]


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
