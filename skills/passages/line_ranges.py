"""Conversion of selected passages to the line ranges that are shown, and their code fences."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from functools import lru_cache

from skills.parsing.markdown import MarkdownBlock, find_fenced_blocks
from skills.record import ParsedSkill, PassageKind


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


def find_open_fence(parsed: ParsedSkill, line: int) -> str:
    """Return the fence of the code block that is open above a line, "" if none is."""
    passages = parsed.passages
    at = bisect_right(passages, line, key=lambda passage: passage.first_line) - 1
    if at < 0 or passages[at].last_line < line:
        return ""
    # The parts of a long block are passages one after the other.
    first = last = at
    while first and _is_next_part(parsed, first):
        first -= 1
    while last + 1 < len(passages) and _is_next_part(parsed, last + 1):
        last += 1
    lines = parsed.lines[passages[first].first_line - 1 : passages[last].last_line]
    line -= passages[first].first_line - 1
    blocks = _find_blocks(lines) if line > 1 else ()
    place = bisect_left(blocks, line, key=lambda block: block.last)
    if place == len(blocks) or blocks[place].first >= line:
        return ""
    return lines[blocks[place].first - 1]


# Many parts of a block may be shown, each with its fence.
@lru_cache(maxsize=32)
def _find_blocks(lines: tuple[str, ...]) -> tuple[MarkdownBlock, ...]:
    return tuple(find_fenced_blocks(lines, 1))


def _is_next_part(parsed: ParsedSkill, index: int) -> bool:
    """Return whether a passage may be of the same code block as the passage before it."""
    before, passage = parsed.passages[index - 1], parsed.passages[index]
    return (
        before.kind is passage.kind is PassageKind.CODE
        and before.section == passage.section
        and before.language == passage.language
    )


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
