"""Splitting a skill's body into sections and passages (SkillPager §3.1, spec §4.2).

A section reaches from a heading to the next. Its passages are its paragraphs, top-level list
items with all that is nested in them, whole tables, and whole code blocks (long ones in chunks).
Passages and heading lines hold every non-blank line of the body exactly once, in order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from skills.parsing.markdown import Block, Shape, scan
from skills.record import BlockKind, Passage, Role, Section
from skills.token_count import count_tokens

LONG_CODE = 12
"""Code blocks of more lines than this are split at their blank lines."""

CHUNK = 4
"""The fewest lines of a chunk of code."""

JOINED = 300
"""Paragraphs are joined up to this many tokens; beyond it a lead-in stays a passage of its own."""

_KINDS = {
    Shape.PARAGRAPH: BlockKind.PARAGRAPH,
    Shape.ITEM: BlockKind.LIST_ITEM,
    Shape.TABLE: BlockKind.TABLE,
    Shape.CODE: BlockKind.CODE,
    Shape.BREAK: BlockKind.PARAGRAPH,
}
_OPENER = re.compile(r"(?:if|when|otherwise)\b|如果|当(?!前|然|天|地)|否则|若", re.IGNORECASE)
_CONNECTIVE = re.compile(r"(?:or|and)\b|(?:e\.g\.|i\.e\.)|或者|以及|并且|例如", re.IGNORECASE)
_MARKS = " \t*_`>~"
_SENTENCE_BREAK = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")
_BOLD_LINE = re.compile(r"(\*\*|__)[^*_]{1,100}\1")


@dataclass(slots=True)
class _Piece:
    """A passage in the making; `lead` is the place of its lead-in among the pieces."""

    kind: BlockKind
    section: int
    first: int
    last: int
    tokens: int
    language: str = ""
    lead: int = -1
    introduces: bool = False


def fragment(
    lines: Sequence[str], body_line: int
) -> tuple[tuple[Section, ...], tuple[Passage, ...]]:
    """Sections and passages of the lines from `body_line` (1-based) on.

    Roles are left at `concept` with confidence 0. A paragraph that ends in a colon, is one bold
    line, or whose last sentence opens with if, when or otherwise joins the paragraph after it,
    and is the lead-in of a list, table or code block after it. A paragraph that opens with or,
    and, e.g. or i.e. joins the paragraph or list item before it.
    """
    return arrange(lines, scan(lines, body_line), body_line)


def arrange(
    lines: Sequence[str], blocks: Sequence[Block], body_line: int
) -> tuple[tuple[Section, ...], tuple[Passage, ...]]:
    """Sections and passages from blocks that have been scanned already."""
    sections = _sections(blocks, body_line)
    pieces: list[_Piece] = []
    section = -1
    for block in blocks:
        if section < 0 or block.shape is Shape.HEADING:
            section += 1
        if block.shape is not Shape.HEADING:
            _add(lines, block, section, pieces)
    return sections, tuple(_passage(index, piece) for index, piece in enumerate(pieces))


def _sections(blocks: Sequence[Block], body_line: int) -> tuple[Section, ...]:
    """One section a heading, and one for what stands before the first."""
    sections: list[Section] = []
    path: list[tuple[int, str]] = []
    opened: Block | None = None
    last = 0

    def close() -> None:
        if last:
            titles = tuple(title for _, title in path)
            level, line = (opened.level, opened.first) if opened else (0, 0)
            first = line or body_line
            sections.append(Section(len(sections), titles, level, line, first, last))

    for block in blocks:
        if block.shape is Shape.HEADING:
            close()
            while path and path[-1][0] >= block.level:
                path.pop()
            path.append((block.level, block.title))
            opened = block
        last = block.last
    close()
    return tuple(sections)


def _add(lines: Sequence[str], block: Block, section: int, pieces: list[_Piece]) -> None:
    """Append a block's passages to the pieces, or join it to the last of them."""
    before = pieces[-1] if pieces and pieces[-1].section == section else None
    lead = _lead(block, before, pieces)
    if block.shape is Shape.CODE:
        for first, last in _chunks(lines, block):
            size = _tokens(lines, first, last)
            pieces.append(_Piece(BlockKind.CODE, section, first, last, size, block.language, lead))
        return
    tokens = _tokens(lines, block.first, block.last)
    introduces = block.shape is Shape.PARAGRAPH and _introduces(lines, block)
    if before is not None and _joins(lines, block, before, tokens):
        before.last = block.last
        before.tokens += tokens
        before.introduces = introduces and before.kind is BlockKind.PARAGRAPH
        return
    piece = _Piece(_KINDS[block.shape], section, block.first, block.last, tokens, "", lead)
    piece.introduces = introduces
    pieces.append(piece)


def _joins(lines: Sequence[str], block: Block, before: _Piece, tokens: int) -> bool:
    """Whether a block becomes part of the passage before it: a break, or a paragraph."""
    if block.shape is Shape.BREAK:
        return True
    if block.shape is not Shape.PARAGRAPH or before.tokens + tokens > JOINED:
        return False
    if before.introduces:
        return True
    if before.kind not in (BlockKind.PARAGRAPH, BlockKind.LIST_ITEM):
        return False
    return _CONNECTIVE.match(lines[block.first - 1].lstrip(_MARKS)) is not None


def _lead(block: Block, before: _Piece | None, pieces: Sequence[_Piece]) -> int:
    """The place of the piece that introduces a block, -1 without one."""
    if before is None:
        return -1
    if before.introduces:
        return len(pieces) - 1
    if block.shape is Shape.ITEM and before.kind is BlockKind.LIST_ITEM:
        return before.lead
    return -1


def _introduces(lines: Sequence[str], block: Block) -> bool:
    """Whether a paragraph is a local header of what follows it."""
    text = " ".join(lines[block.first - 1 : block.last][-3:]).strip(_MARKS)
    if text.endswith((":", "：")):
        return True
    if block.first == block.last and _BOLD_LINE.fullmatch(lines[block.first - 1].strip()):
        return True
    if len(text) > 4000:
        return False
    sentence = _SENTENCE_BREAK.split(text.rstrip("。！？"))[-1]
    return _OPENER.match(sentence.lstrip(_MARKS)) is not None


def _chunks(lines: Sequence[str], block: Block) -> list[tuple[int, int]]:
    """Line ranges of a code block: whole, or at least CHUNK lines each between blank lines."""
    if block.last - block.first + 1 <= LONG_CODE:
        return [(block.first, block.last)]
    chunks: list[tuple[int, int]] = []
    first, last, blank = block.first, block.first, False
    for number in range(block.first, block.last + 1):
        if not lines[number - 1].strip():
            blank = True
            continue
        if blank and last - first + 1 >= CHUNK:
            chunks.append((first, last))
            first = number
        last, blank = number, False
    if chunks and last - first + 1 < CHUNK:
        first = chunks.pop()[0]
    return [*chunks, (first, last)]


def _tokens(lines: Sequence[str], first: int, last: int) -> int:
    return count_tokens("\n".join(lines[first - 1 : last]))


def _passage(index: int, piece: _Piece) -> Passage:
    return Passage(
        index,
        piece.section,
        piece.kind,
        Role.CONCEPT,
        0.0,
        piece.first,
        piece.last,
        piece.tokens,
        piece.language,
        piece.lead,
    )
