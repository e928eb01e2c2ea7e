"""A line-based scanner of Markdown blocks.

It follows CommonMark, except that very long lines are no headings, and for common deviations in
skill files: list contents indented by two columns, fences nested in a Markdown fence, tables
without a delimiter row, headings in Chinese without a blank after the marks. Each line is read a
bounded number of times.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum


class BlockType(StrEnum):
    """Type of a block."""

    HEADING = "heading"
    PARAGRAPH = "paragraph"
    ITEM = "item"
    TABLE = "table"
    CODE = "code"
    BREAK = "break"


@dataclass(frozen=True, slots=True)
class MarkdownBlock:
    """A block: lines `first` to `last` (1-based, inclusive) of one type.

    `level` and `title` are set for headings. `language` is the first word of a fence's info string.
    `fenced` is False for indented code. `closed` is False for a fence without an end.
    """

    type: BlockType
    first: int
    last: int
    level: int = 0
    title: str = ""
    language: str = ""
    fenced: bool = False
    closed: bool = True


_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*(.*)")
_ITEM = re.compile(r"(?:[-*+•]|\d{1,9}[.)])(?=[ \t]|$)")
_MARKER = re.compile(r"^[ \t]*(?:[-*+•]|\d{1,9}[.)])[ \t]+")
_CLOSE_ITEM = re.compile(r"\d{1,3}[、.．](?=[^\d\s])")
_HTML = re.compile(r"</?[A-Za-z][A-Za-z0-9-]*(?=[\s/>]|$)|<!--")
_HEADING_MARKS = re.compile(r"#{1,6}")
_CJK_START = re.compile(r"[\u4e00-\u9fff【（「]")
_NESTING_INFO = frozenset({"markdown", "md", "mdx", "skill", "text", "txt"})
# Lines searched for the end of a fence around other fences, per fence and in the whole file.
_NESTED_LINES = 500
_NESTED_BUDGET = 50_000
# Characters that may follow a closing fence by mistake, such as the `**` of bold text around it.
_STRAY = 3
_SETEXT_LENGTH = 120
# Characters of a heading's line. Each section has the titles of all headings above it.
_HEADING_LENGTH = 500
_SENTENCE_ENDS = (".", ":", "。", "：", ";", "；", "!", "！", "|")


def parse_blocks(lines: Sequence[str], first_line: int) -> list[MarkdownBlock]:
    """Parse `lines[first_line - 1:]` into blocks, which contain every non-blank line, in order."""
    return _BlockParser(lines).blocks(first_line - 1)


def find_fenced_lines(lines: Sequence[str], first_line: int) -> list[bool]:
    """Return for each line whether it is in a fenced block, the fences included.

    Blocks in list items count too. first_line: the first line of the Markdown (1-based).
    """
    blocks = find_fenced_blocks(lines, first_line)
    inside = {number for block in blocks for number in range(block.first, block.last + 1)}
    return [number in inside for number in range(1, len(lines) + 1)]


def find_fenced_blocks(lines: Sequence[str], first_line: int) -> Iterator[MarkdownBlock]:
    """Yield the fenced blocks, in list items too. first_line: a line in no block (1-based)."""
    parser, at = _BlockParser(lines), first_line - 1
    while at < len(lines):
        line = lines[at]
        may_open = "```" in line or "~~~" in line
        if may_open and (opening := _fence_at(_MARKER.sub("", line))):
            block = parser.fence(at, *opening)
            yield block
            at = block.last
        else:
            at += 1


def measure_indent(line: str) -> int:
    """Count the columns before the first non-blank character; tab stops are four columns apart."""
    columns = 0
    for char in line:
        if char == " ":
            columns += 1
        elif char == "\t":
            columns += 4 - columns % 4
        else:
            break
    return columns


def parse_heading(line: str) -> tuple[int, str] | None:
    """Return level and title of an ATX heading, None for any other line.

    A heading in the same line as the closing `---` of a frontmatter counts.
    """
    if "#" not in line[:4] or len(line) > _HEADING_LENGTH or measure_indent(line) > 3:
        return None
    text = line.strip().removeprefix("---")
    marks = _HEADING_MARKS.match(text)
    if marks is None:
        return None
    level, rest = marks.end(), text[marks.end() :]
    if rest and not rest[0].isspace() and (level == 1 or not _CJK_START.match(rest)):
        return None
    title = rest.strip()
    bare = title.rstrip("#")
    if bare != title and (not bare or bare[-1].isspace()):
        title = bare.rstrip()
    return level, title


def is_thematic_break(line: str) -> bool:
    """Return whether a line is a thematic break: three or more of `-`, `*` or `_` alone."""
    text = line.strip()
    if len(text) < 3 or text[0] not in "-*_" or text[-1] != text[0]:
        return False
    return set(text) <= {text[0], " ", "\t"} and text.count(text[0]) >= 3


def is_delimiter_row(line: str) -> bool:
    """Return whether a line is the row of dashes under a table's header."""
    text = line.strip()
    return "-" in text and "|" in text and set(text) <= set("|:- \t")


def _fence_at(line: str) -> tuple[str, str] | None:
    """Return mark and info string of an opening fence, None for any other line.

    A line of backticks with a backtick in its info string is inline code.
    """
    if "```" not in line and "~~~" not in line:
        return None
    match = _FENCE.match(line)
    if match is None or (match[1][0] == "`" and "`" in match[2]):
        return None
    return match[1], match[2]


def _language(info: str) -> str:
    """Return the language that the info string of a fence names."""
    return re.split(r"[\s,{:]", info.strip("{}. "), maxsplit=1)[0].lower()[:40]


class _BlockParser:
    """Walks the lines once; each method takes a 0-based line and returns the block there."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._end = len(lines)
        # Mark character -> the longest closing fence from each line on; saves searches.
        self._longest: dict[str, list[int]] = {}
        self._comments_end = True
        self._nested_budget = _NESTED_BUDGET

    def blocks(self, start: int) -> list[MarkdownBlock]:
        found: list[MarkdownBlock] = []
        at = start
        while at < self._end:
            if not self._lines[at].strip():
                at += 1
                continue
            block = self._block(at)
            found.append(block)
            at = block.last
        return found

    def _block(self, at: int) -> MarkdownBlock:
        line = self._lines[at]
        if measure_indent(line) >= 4:
            opening = _fence_at(line)
            return self.fence(at, *opening) if opening else self._indented(at)
        title = parse_heading(line)
        if title is not None:
            return MarkdownBlock(BlockType.HEADING, at + 1, at + 1, title[0], title[1])
        if is_thematic_break(line):
            return MarkdownBlock(BlockType.BREAK, at + 1, at + 1)
        opening = _fence_at(line)
        if opening:
            return self.fence(at, *opening)
        if self._opens_item(line):
            return self._item(at)
        if self._opens_table(at):
            return self._table(at)
        if line.lstrip().startswith("<!--"):
            return self._comment(at)
        return self._paragraph(at)

    # -- code

    def fence(self, at: int, mark: str, info: str) -> MarkdownBlock:
        """Return the block of the fence that opens at a line."""
        language = _language(info)
        end = self._fence_end(at, mark, language)
        closed = end >= 0
        if not closed:
            end = self._unclosed_end(at)
        return MarkdownBlock(
            BlockType.CODE, at + 1, end + 1, language=language, fenced=True, closed=closed
        )

    def _fence_end(self, at: int, mark: str, language: str) -> int:
        """Return the line that closes the fence opened at `at`, -1 without one."""
        if language in _NESTING_INFO:
            nested = self._nested_end(at, mark)
            if nested >= 0:
                return nested
        longest = self._longest.get(mark[0])
        if longest is not None and longest[at + 1] < len(mark):
            return -1
        for number in range(at + 1, self._end):
            if self._closes(self._lines[number], mark):
                return number
        self._longest[mark[0]] = self._find_longest(mark[0])
        return -1

    def _find_longest(self, char: str) -> list[int]:
        """Return for each line the length of the longest closing fence in it and all later ones."""
        longest = [0] * (self._end + 1)
        for number in reversed(range(self._end)):
            text = self._lines[number].strip()
            closes = self._closes(text, 3 * char)
            length = len(text) - len(text.lstrip(char)) if closes else 0
            longest[number] = max(longest[number + 1], length)
        return longest

    @staticmethod
    def _closes(line: str, mark: str) -> bool:
        """Return whether a line closes a fence: the mark, then at most a few stray characters."""
        text = line.strip()
        if not text.startswith(mark):
            return False
        rest = text.lstrip(mark[0])
        return len(rest) <= _STRAY and not any(char.isalnum() for char in rest)

    def _nested_end(self, at: int, mark: str) -> int:
        """Return the closing line of a fence around Markdown with equal fences, -1 without one."""
        depth = 1
        for number in range(at + 1, min(at + _NESTED_LINES, self._end)):
            self._nested_budget -= 1
            if self._nested_budget < 0:
                break
            text = self._lines[number].strip()
            if not text.startswith(mark):
                continue
            if self._closes(text, mark):
                depth -= 1
                if depth == 0:
                    return number
            elif _fence_at(text):
                depth += 1
        return -1

    def _unclosed_end(self, at: int) -> int:
        """Return the last line of an unclosed fence: before the next `##` heading, or the last."""
        for number in range(at + 1, self._end):
            if self._lines[number].startswith("## ") and not self._lines[number - 1].strip():
                return self._trim(at, number - 1)
        return self._trim(at, self._end - 1)

    def _indented(self, at: int) -> MarkdownBlock:
        last = at
        for number in range(at + 1, self._end):
            line = self._lines[number]
            if not line.strip():
                continue
            if measure_indent(line) < 4 or _fence_at(line):
                break
            last = number
        return MarkdownBlock(BlockType.CODE, at + 1, last + 1)

    def _trim(self, first: int, last: int) -> int:
        while last > first and not self._lines[last].strip():
            last -= 1
        return last

    # -- lists

    @staticmethod
    def _opens_item(line: str) -> bool:
        text = line.lstrip()
        return bool(_ITEM.match(text) or _CLOSE_ITEM.match(text))

    def _item(self, at: int) -> MarkdownBlock:
        """Parse a top-level item with its nested content."""
        base = measure_indent(self._lines[at])
        last, after_blank = self._mark_end(at), False
        number = last + 1
        while number < self._end:
            line = self._lines[number]
            if not line.strip():
                after_blank = True
                number += 1
                continue
            indent = measure_indent(line)
            if indent <= base + 1 and (after_blank or self._interrupts(number)):
                break
            last, after_blank = number, False
            if indent > base + 1:
                opening = _fence_at(line)
                last = self.fence(number, *opening).last - 1 if opening else self._mark_end(number)
            number = last + 1
        return MarkdownBlock(BlockType.ITEM, at + 1, last + 1)

    def _mark_end(self, at: int) -> int:
        """Return the last line of the fence that opens right after the mark of an item, or `at`."""
        opening = _fence_at(_MARKER.sub("", self._lines[at]))
        return max(at, self._fence_end(at, opening[0], _language(opening[1]))) if opening else at

    # -- tables, comments, paragraphs

    def _opens_table(self, at: int) -> bool:
        line = self._lines[at]
        if "|" not in line or at + 1 >= self._end:
            return False
        below = self._lines[at + 1]
        if is_delimiter_row(below):
            return True
        return line.lstrip().startswith("|") and below.lstrip().startswith("|")

    def _table(self, at: int) -> MarkdownBlock:
        last = at + 1
        while last + 1 < self._end:
            line = self._lines[last + 1]
            if not line.strip() or ("|" not in line and self._interrupts(last + 1)):
                break
            if "|" not in line and not line.startswith((" ", "\t")):
                break
            last += 1
        return MarkdownBlock(BlockType.TABLE, at + 1, last + 1)

    def _comment(self, at: int) -> MarkdownBlock:
        """Parse an HTML comment with its blank lines; an unclosed comment is a paragraph."""
        if self._comments_end:
            for number in range(at, self._end):
                if "-->" in self._lines[number]:
                    return MarkdownBlock(BlockType.PARAGRAPH, at + 1, number + 1)
            self._comments_end = False
        return self._paragraph(at)

    def _paragraph(self, at: int) -> MarkdownBlock:
        """Parse running text, a block quote or HTML, up to the next blank line or block."""
        last = at
        quote = self._lines[at].lstrip().startswith(">")
        while last + 1 < self._end:
            line = self._lines[last + 1]
            if not line.strip():
                break
            level = 0 if quote else self._underlines(at, last)
            if level:
                title = " ".join(text.strip() for text in self._lines[at : last + 1])
                return MarkdownBlock(BlockType.HEADING, at + 1, last + 2, level, title)
            if line.lstrip().startswith(">") != quote or self._interrupts(last + 1):
                break
            last += 1
        return MarkdownBlock(BlockType.PARAGRAPH, at + 1, last + 1)

    def _underlines(self, first: int, last: int) -> int:
        """Return the level of a setext heading that the line after `last` underlines, 0 if none."""
        line = self._lines[last + 1].strip()
        text = self._lines[last].strip()
        if len(line) < 2 or first != last or len(text) > _SETEXT_LENGTH:
            return 0
        if not line.strip("="):
            return 1
        if not line.strip("-") and len(line) > 2 and not text.endswith(_SENTENCE_ENDS):
            return 0 if _HTML.match(text) else 2
        return 0

    def _interrupts(self, at: int) -> bool:
        """Return whether a line begins a new block without a blank line before it."""
        line = self._lines[at]
        if parse_heading(line) or is_thematic_break(line) or _fence_at(line):
            return True
        if measure_indent(line) >= 4:
            return False
        return self._opens_item(line) or self._opens_table(at)
