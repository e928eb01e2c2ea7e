"""Sources of every kind say where the text of a skill is."""

from __future__ import annotations

import pytest

from graph.records import Source
from tasks.sources.readers import get_skill_location

SOURCES = (
    Source("here", "directory", "/srv/skills"),
    Source("mono", "git", "https://git.example/mono.git", path="tools/skills"),
    Source("kit", "upload", "upload:kit"),
)


@pytest.mark.parametrize(
    ("skill_id", "expected"),
    [
        ("here:a/b", "/srv/skills/a/b/SKILL.md"),
        ("here:.", "/srv/skills/SKILL.md"),
        ("mono:a", "https://git.example/mono.git//tools/skills/a/SKILL.md"),
        ("mono:.", "https://git.example/mono.git//tools/skills/SKILL.md"),
        ("kit:a", "upload:kit//a/SKILL.md"),
        ("gone:a", "gone:a/SKILL.md"),
    ],
)
def test_location_of_a_skill(skill_id: str, expected: str) -> None:
    assert get_skill_location(SOURCES, skill_id) == expected
