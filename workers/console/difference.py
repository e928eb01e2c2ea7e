"""The difference of two revisions, in the form that pages show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_DIFF_LINES = 3_000


def describe_change(change: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a difference with `rows` for its lines: class, sign and text of each.

    change: in the form of the HTTP API, or None. more_lines: number of lines that are not shown.
    """
    if change is None:
        return None
    lines = change.get("diff", [])
    return {"withheld": None} | {
        **change,
        "more_lines": max(0, len(lines) - MAX_DIFF_LINES),
        "rows": [_describe_line(line) for line in lines[:MAX_DIFF_LINES]],
    }


def _describe_line(line: str) -> tuple[str, str, str]:
    """Return class, sign and text of a line of a unified diff."""
    if line.startswith("@@"):
        return "hunk", "", line
    kinds = {"+": "added", "-": "removed"}
    return kinds.get(line[:1], "same"), {"-": "−"}.get(line[:1], line[:1]), line[1:]
