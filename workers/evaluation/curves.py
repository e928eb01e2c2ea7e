"""Curves as SVG, without a plotting library: the same figures give the same bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
"""Distinguishable to colour-blind readers (Okabe and Ito, 2008)."""

_WIDTH, _HEIGHT = 640, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 20, 20, 50
_TICKS = 5
_LEGEND_LINE = 18


@dataclass(frozen=True, slots=True)
class Curve:
    """A named curve through points (x, y) with x and y of at least 0."""

    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


def draw_curves(curves: Sequence[Curve], x: str, y: str) -> str:
    """The curves as an SVG image with axes from 0, and a legend. x, y: what the axes are."""
    width = _round_up(max((px for curve in curves for px, _ in curve.points), default=1.0))
    height = _round_up(max((py for curve in curves for _, py in curve.points), default=1.0))
    scale = _Scale(width, height)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        *_draw_axes(scale, x, y),
    ]
    for number, curve in enumerate(curves):
        parts += _draw_curve(scale, curve, COLOURS[number % len(COLOURS)], number)
    return "\n".join([*parts, "</svg>", ""])


@dataclass(frozen=True, slots=True)
class _Scale:
    """Places in the image of points up to (width, height)."""

    width: float
    height: float

    def x(self, value: float) -> str:
        return f"{_LEFT + value / self.width * (_WIDTH - _LEFT - _RIGHT):.1f}"

    def y(self, value: float) -> str:
        return f"{_HEIGHT - _BOTTOM - value / self.height * (_HEIGHT - _TOP - _BOTTOM):.1f}"


def _round_up(value: float) -> float:
    """The next number of one digit and zeros, or its half."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if value <= step * power * (1 + 1e-9))


def _draw_axes(scale: _Scale, x: str, y: str) -> Iterator[str]:
    for number in range(_TICKS + 1):
        across, up = scale.width * number / _TICKS, scale.height * number / _TICKS
        level, place = scale.y(up), scale.x(across)
        yield (
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{level}" y2="{level}" '
            f'stroke="#dddddd"/>'
        )
        yield f'<text x="{_LEFT - 8}" y="{level}" text-anchor="end" dy="4">{up:,.4g}</text>'
        yield (
            f'<text x="{place}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">'
            f"{across:,.10g}</text>"
        )
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    yield f'<text x="{middle:g}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(x)}</text>'
    centre = (_TOP + _HEIGHT - _BOTTOM) / 2
    yield (
        f'<text x="14" y="{centre:g}" text-anchor="middle" '
        f'transform="rotate(-90 14 {centre:g})">{escape(y)}</text>'
    )


def _draw_curve(scale: _Scale, curve: Curve, colour: str, number: int) -> Iterator[str]:
    dash = ' stroke-dasharray="6 4"' if curve.dashed else ""
    path = " ".join(f"{scale.x(px)},{scale.y(py)}" for px, py in curve.points)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'
    for px, py in curve.points:
        yield f'<circle cx="{scale.x(px)}" cy="{scale.y(py)}" r="3" fill="{colour}"/>'
    level = _HEIGHT - _BOTTOM - 12 - number * _LEGEND_LINE
    end = _WIDTH - _RIGHT
    yield (
        f'<line x1="{end - 30}" x2="{end}" y1="{level}" y2="{level}" stroke="{colour}" '
        f'stroke-width="2"{dash}/>'
    )
    yield f'<text x="{end - 36}" y="{level + 4}" text-anchor="end">{escape(curve.name)}</text>'
