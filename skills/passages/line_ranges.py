"""Conversion of selected passages to the line ranges that are shown."""

from __future__ import annotations

from collections.abc import Iterable

from skills.record import ParsedSkill


def get_line_ranges(
    parsed: ParsedSkill, chosen: Iterable[int], *, context: bool = True
) -> list[tuple[int, int]]:
    """Return the line ranges of the chosen passages, in document order; adjacent ranges are merged.

    With `context`, the ranges include the passages' section headings and lead-ins.
    """
    wanted = set(chosen)
    if context:
        wanted |= {parsed.passages[index].lead_in for index in wanted} - {-1}
    spans = set()
    for index in wanted:
        passage = parsed.passages[index]
        spans.add((passage.first_line, passage.last_line))
        heading = parsed.sections[passage.section].heading_line
        if heading and context:
            spans.add((heading, heading))
    return _merge_ranges(parsed, sorted(spans))


def _merge_ranges(parsed: ParsedSkill, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge ranges that overlap, touch or are separated only by blank lines."""
    merged: list[tuple[int, int]] = []
    for first, last in spans:
        end = merged[-1][1] if merged else 0
        if merged and (first <= end + 1 or _is_blank(parsed.lines[end : first - 1])):
            merged[-1] = (merged[-1][0], max(end, last))
        else:
            merged.append((first, last))
    return merged


def _is_blank(lines: Iterable[str]) -> bool:
    return not any(map(str.strip, lines))
