"""Counts and durations as text, in commands, checks and on pages."""

from __future__ import annotations


def format_count(count: int, noun: str) -> str:
    """Return a number with its noun: "1 skill", "2 skills", "2 queries"."""
    if count != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"
    return f"{count} {noun}"


def format_duration(seconds: float | None) -> str:
    """Return a duration in its largest unit: `42 s`, `7 min`, `3 h`, `12 days`."""
    if seconds is None:
        return "never"
    for unit, size in (("days", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * size or (unit != "days" and seconds >= size):
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def format_seconds(seconds: float) -> str:
    """Return a duration with three digits or more: `4.2 ms`, `0.31 s`, `75 s`."""
    if seconds < 0.1:
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:,.0f} s"
