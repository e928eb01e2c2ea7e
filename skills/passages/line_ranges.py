"""Conversion of selected passages to the line ranges that are shown, and their code fences."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

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


class OpenFences:
    """The fences of a skill's code blocks, to be shown above lines from within a block.

    Each block is searched once for all lines: a skill may have thousands of parts of blocks.
    """

    def __init__(self, parsed: ParsedSkill) -> None:
        self._parsed = parsed
        # The parts of a long block are passages one after the other.
        places = range(len(parsed.passages))
        self._runs = [place for place in places if not _is_next_part(parsed, place)]
        self._blocks: dict[int, list[MarkdownBlock]] = {}

    def find(self, line: int) -> str:
        """Return the fence of the code block that is open above a line, "" if none is."""
        passages, lines = self._parsed.passages, self._parsed.lines
        at = bisect_right(passages, line, key=lambda passage: passage.first_line) - 1
        if at < 0 or passages[at].last_line < line:
            return ""
        run = bisect_right(self._runs, at)
        first = passages[self._runs[run - 1]].first_line
        if first == line:
            return ""
        if run not in self._blocks:
            end = self._runs[run] if run < len(self._runs) else len(passages)
            inside = lines[first - 1 : passages[end - 1].last_line]
            self._blocks[run] = list(find_fenced_blocks(inside, 1))
        blocks, number = self._blocks[run], line - first + 1
        place = bisect_left(blocks, number, key=lambda block: block.last)
        if place == len(blocks) or blocks[place].first >= number:
            return ""
        return lines[first + blocks[place].first - 2]


def _is_next_part(parsed: ParsedSkill, index: int) -> bool:
    """Return whether a passage may be of the same code block as the passage before it."""
    if not index:
        return False
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
