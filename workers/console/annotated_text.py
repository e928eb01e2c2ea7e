"""The lines of a SKILL.md with their role, findings, and whether they were sent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from workers.console.text_display import Url, show_line

MAX_LINES = 2_000
"""Maximum of lines on a page; the rest is on further pages."""

SKILL_FILE = "SKILL.md"

ROLE_LABELS = {
    "step": "step",
    "example": "example",
    "param": "parameter",
    "precondition": "precondition",
    "error_handling": "errors",
    "concept": "concept",
}
"""Words in the margin, by role."""


@dataclass(frozen=True, slots=True)
class AnnotatedLine:
    """A line of a SKILL.md.

    number: from 1. html: its text. label: of the passage that begins here, else "". marks: its
    findings. classes: CSS classes of its row.
    """

    number: int
    html: Markup
    label: str
    marks: Sequence[Mapping[str, Any]]
    classes: str


def annotate_lines(
    text: str,
    passages: Sequence[Mapping[str, Any]] = (),
    findings: Sequence[Mapping[str, Any]] = (),
    *,
    first: int = 1,
    sent: Collection[int] | None = None,
) -> list[AnnotatedLine]:
    """Return the annotated lines of a page of a text.

    passages, findings: as in the JSON of a skill. first: number of the page's first line. sent:
    numbers of the lines in a bundle; None if no bundle is shown.
    """
    roles, begins = _spread_roles(passages)
    marks: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for one in findings:
        if one["file"] == SKILL_FILE and one["line"]:
            marks[one["line"]].append(one)
    shown = text.split("\n")[first - 1 : first - 1 + MAX_LINES]
    lines = []
    for number, line in enumerate(shown, first):
        role = roles.get(number, "")
        classes = [f"role-{role}" if role else ""]
        classes += ["begins"] if number in begins else []
        classes += ["marked"] if number in marks else []
        if sent is not None:
            classes.append("sent" if number in sent else "left-out")
        label = ROLE_LABELS.get(role, role) if number in begins else ""
        lines.append(
            AnnotatedLine(
                number,
                show_line(line),
                label,
                marks.get(number, ()),
                " ".join(filter(None, classes)),
            )
        )
    return lines


def _spread_roles(passages: Sequence[Mapping[str, Any]]) -> tuple[dict[int, str], set[int]]:
    """Return the role of each line of a passage, and the first lines of passages."""
    roles: dict[int, str] = {}
    begins = set()
    for passage in passages:
        first, last = passage["lines"]
        begins.add(first)
        roles |= dict.fromkeys(range(first, last + 1), passage["role"])
    return roles, begins


def line_url(url: str, line: int) -> Url:
    """Return the URL of a line of a text, on the page that has it. url: of the text."""
    first = line - (line - 1) % MAX_LINES
    page = f"{'&' if '?' in url else '?'}line={first}" if first > 1 else ""
    return Url(f"{url}{page}#L{line}")


def list_pages(lines: int) -> list[tuple[int, int]]:
    """Return first and last line of each page of a text with this number of lines."""
    return [
        (first, min(first + MAX_LINES - 1, lines))
        for first in range(1, max(lines, 1) + 1, MAX_LINES)
    ]
