"""Heading paths of sections within a skill."""

from __future__ import annotations

from collections.abc import Sequence

from skills.record import ParsedSkill, Section


def heading_paths_below_title(sections: Sequence[Section]) -> list[tuple[str, ...]]:
    """Return the heading path of each section without the skill's title.

    The title is the only heading of level 1. Without such a heading, or with several, the paths are
    complete.
    """
    titles = [section.index for section in sections if section.level == 1]
    if len(titles) != 1:
        return [section.heading_path for section in sections]
    return [
        section.heading_path[1:] if section.index >= titles[0] else section.heading_path
        for section in sections
    ]


def heading_paths_from_title(parsed: ParsedSkill) -> list[tuple[str, ...]]:
    """Return the heading path of each section from the skill's title on, or from its name if it has
    no single title; () for text without a heading."""
    name = parsed.record.name
    paths = heading_paths_below_title(parsed.sections)
    return [
        (name, *path) if path and path == section.heading_path else section.heading_path
        for path, section in zip(paths, parsed.sections, strict=True)
    ]
