"""Sections and passages straight from the lines of a skill."""

from __future__ import annotations

from collections.abc import Sequence

from skills.parsing.fragments import split_blocks
from skills.parsing.markdown import parse_blocks
from skills.record import Passage, Section


def split_lines(
    lines: Sequence[str], body_line: int = 1
) -> tuple[tuple[Section, ...], tuple[Passage, ...]]:
    return split_blocks(lines, parse_blocks(lines, body_line), body_line)
