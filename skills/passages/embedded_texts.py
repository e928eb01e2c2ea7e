"""The texts that are embedded for the sections and passages of a skill."""

from __future__ import annotations

from skills.passages.headings import heading_paths_below_title
from skills.record import ParsedSkill, Section

MAX_EMBEDDED_CHARACTERS = 1500
"""Maximum characters of a text to embed; about the input of an encoder with 256 tokens."""


def section_texts(parsed: ParsedSkill) -> tuple[str, ...]:
    """Return the text to embed for each section: heading path without title, line feed, text."""
    return tuple(
        _with_heading_path(path, parsed.text(_first_text_line(section), section.last_line))
        for path, section in zip(
            heading_paths_below_title(parsed.sections), parsed.sections, strict=True
        )
    )


def passage_texts(parsed: ParsedSkill) -> tuple[str, ...]:
    """Return the text to embed for each passage: heading path of its section, line feed, text."""
    paths = heading_paths_below_title(parsed.sections)
    return tuple(
        _with_heading_path(
            paths[passage.section], parsed.text(passage.first_line, passage.last_line)
        )
        for passage in parsed.passages
    )


def _first_text_line(section: Section) -> int:
    return section.heading_line + 1 if section.heading_line else section.first_line


def _with_heading_path(path: tuple[str, ...], text: str) -> str:
    return f"{' > '.join(path)}\n{text}"[:MAX_EMBEDDED_CHARACTERS]
