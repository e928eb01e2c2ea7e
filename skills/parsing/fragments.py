"""Splits a skill's body into sections and passages (SkillPager §3.1).

A section reaches from a heading to the next. Its passages are its paragraphs, top-level list
items with their nested content, whole tables, and code blocks (long blocks in chunks). Passages and
heading lines contain every non-blank line of the body exactly once, in order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from skills.parsing.markdown import BlockType, MarkdownBlock
from skills.record import Passage, PassageKind, Role, Section
from skills.token_count import count_tokens

MAX_CODE_LINES = 12
"""Code blocks with more lines are split at blank lines."""

MIN_CHUNK_LINES = 4
"""Minimum lines of a chunk of code."""

MAX_JOINED_TOKENS = 300
"""Paragraphs are joined up to this many tokens; a longer lead-in stays a separate passage."""

_KINDS = {
    BlockType.PARAGRAPH: PassageKind.PARAGRAPH,
    BlockType.ITEM: PassageKind.LIST_ITEM,
    BlockType.TABLE: PassageKind.TABLE,
    BlockType.CODE: PassageKind.CODE,
    BlockType.BREAK: PassageKind.PARAGRAPH,
}
_OPENER = re.compile(r"(?:if|when|otherwise)\b|如果|当(?!前|然|天|地)|否则|若", re.IGNORECASE)
_CONNECTIVE = re.compile(r"(?:or|and)\b|(?:e\.g\.|i\.e\.)|或者|以及|并且|例如", re.IGNORECASE)
_MARKS = " \t*_`>~"
_COLONS = (":", "：")
_SENTENCE_BREAK = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")
_BOLD_LINE = re.compile(r"(\*\*|__)[^*_]{1,100}\1")


@dataclass(slots=True)
class _PassageDraft:
    """A passage under construction; `lead` is the index of its lead-in among the drafts."""

    kind: PassageKind
    section: int
    first: int
    last: int
    tokens: int
    language: str = ""
    lead: int = -1
    introduces: bool = False


def split_blocks(
    lines: Sequence[str], blocks: Sequence[MarkdownBlock], body_line: int
) -> tuple[tuple[Section, ...], tuple[Passage, ...]]:
    """Split the Markdown blocks from line `body_line` (1-based) on into sections and passages.

    All roles are `concept` with confidence 0. A paragraph is a lead-in if it ends in a colon, is a
    single bold line, or has a last sentence that begins with if, when or otherwise. A lead-in is
    joined with a paragraph after it, and is the `lead_in` of a list, table or code block after it,
    as is any paragraph without a blank line between.
    A list item that ends in a colon is the `lead_in` of a block other than an item after it:
    many authors do not indent the command of a numbered step. A paragraph that begins with or, and,
    e.g. or i.e. is joined with the paragraph or list item before it.
    """
    sections = _sections(blocks, body_line)
    drafts: list[_PassageDraft] = []
    section = -1
    for block in blocks:
        if section < 0 or block.type is BlockType.HEADING:
            section += 1
        if block.type is not BlockType.HEADING:
            _add_block(lines, block, section, drafts)
    return sections, tuple(_passage(index, draft) for index, draft in enumerate(drafts))


def _sections(blocks: Sequence[MarkdownBlock], body_line: int) -> tuple[Section, ...]:
    """One section per heading, and one for the text before the first heading."""
    sections: list[Section] = []
    path: list[tuple[int, str]] = []
    opened: MarkdownBlock | None = None
    last = 0

    def close() -> None:
        if last:
            titles = tuple(title for _, title in path)
            level, line = (opened.level, opened.first) if opened else (0, 0)
            first = line or body_line
            sections.append(Section(len(sections), titles, level, line, first, last))

    for block in blocks:
        if block.type is BlockType.HEADING:
            close()
            while path and path[-1][0] >= block.level:
                path.pop()
            path.append((block.level, block.title))
            opened = block
        last = block.last
    close()
    return tuple(sections)


def _add_block(
    lines: Sequence[str], block: MarkdownBlock, section: int, drafts: list[_PassageDraft]
) -> None:
    """Append a block's passages to the drafts, or join the block to the last draft."""
    before = drafts[-1] if drafts and drafts[-1].section == section else None
    lead, introduces = _find_lead_in(block, before, drafts), _introduces(lines, block)
    for first, last in _split_code(lines, block):
        tokens = _tokens(lines, first, last)
        if before is not None and _joins_previous(lines, block, before, tokens):
            before.last = last
            before.tokens += tokens
            before.introduces = introduces
            return
        draft = _PassageDraft(_KINDS[block.type], section, first, last, tokens, block.language)
        draft.lead, draft.introduces = lead, introduces
        drafts.append(draft)


def _joins_previous(
    lines: Sequence[str], block: MarkdownBlock, before: _PassageDraft, tokens: int
) -> bool:
    """Return whether a block joins the passage before it; true for breaks and some paragraphs."""
    if block.type is BlockType.BREAK:
        return True
    if block.type is not BlockType.PARAGRAPH or before.tokens + tokens > MAX_JOINED_TOKENS:
        return False
    if before.introduces and before.kind is PassageKind.PARAGRAPH:
        return True
    if before.kind not in (PassageKind.PARAGRAPH, PassageKind.LIST_ITEM):
        return False
    return _CONNECTIVE.match(lines[block.first - 1].lstrip(_MARKS)) is not None


def _find_lead_in(
    block: MarkdownBlock, before: _PassageDraft | None, drafts: Sequence[_PassageDraft]
) -> int:
    """Index of the draft that introduces a block, -1 without one."""
    if before is None:
        return -1
    if block.type is BlockType.ITEM and before.kind is PassageKind.LIST_ITEM:
        return before.lead
    touches = before.kind is PassageKind.PARAGRAPH and before.last + 1 == block.first
    return len(drafts) - 1 if before.introduces or touches else -1


def _introduces(lines: Sequence[str], block: MarkdownBlock) -> bool:
    """Return whether a paragraph or list item is a lead-in of the block after it."""
    if block.type is BlockType.ITEM:
        # The last line alone: an item that ends in a code block introduces nothing.
        return lines[block.last - 1].rstrip(_MARKS).endswith(_COLONS)
    if block.type is not BlockType.PARAGRAPH:
        return False
    text = " ".join(lines[block.first - 1 : block.last][-3:]).strip(_MARKS)
    if text.endswith(_COLONS):
        return True
    if block.first == block.last and _BOLD_LINE.fullmatch(lines[block.first - 1].strip()):
        return True
    if len(text) > 4000:
        return False
    sentence = _SENTENCE_BREAK.split(text.rstrip("。！？"))[-1]
    return _OPENER.match(sentence.lstrip(_MARKS)) is not None


def _split_code(lines: Sequence[str], block: MarkdownBlock) -> list[tuple[int, int]]:
    """Return the line ranges of a block: one, or for long code chunks split at blank lines."""
    if block.type is not BlockType.CODE or block.last - block.first < MAX_CODE_LINES:
        return [(block.first, block.last)]
    chunks: list[tuple[int, int]] = []
    first, last, blank = block.first, block.first, False
    for number in range(block.first, block.last + 1):
        if not lines[number - 1].strip():
            blank = True
            continue
        if blank and last - first + 1 >= MIN_CHUNK_LINES:
            chunks.append((first, last))
            first = number
        last, blank = number, False
    if chunks and last - first + 1 < MIN_CHUNK_LINES:
        first = chunks.pop()[0]
    return [*chunks, (first, last)]


def _tokens(lines: Sequence[str], first: int, last: int) -> int:
    return count_tokens("\n".join(lines[first - 1 : last]))


def _passage(index: int, draft: _PassageDraft) -> Passage:
    return Passage(
        index,
        draft.section,
        draft.kind,
        Role.CONCEPT,
        0.0,
        draft.first,
        draft.last,
        draft.tokens,
        draft.language,
        draft.lead,
    )
