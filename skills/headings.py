"""Heading paths as a reader inside the skill needs them."""

from __future__ import annotations

from collections.abc import Sequence

from skills.record import Section


def heading_paths_below_title(sections: Sequence[Section]) -> list[tuple[str, ...]]:
    """The heading path of each section without the skill's title.

    The title is the only heading of level 1; where there are several, or none, paths are whole.
    """
    titles = [section.index for section in sections if section.level == 1]
    if len(titles) != 1:
        return [section.heading_path for section in sections]
    return [
        section.heading_path[1:] if section.index >= titles[0] else section.heading_path
        for section in sections
    ]
