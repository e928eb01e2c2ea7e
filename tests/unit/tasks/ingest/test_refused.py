"""Folders that may not be read any more: which skills a scan of their source withdraws."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from graph.records import SkillState
from tests.support.samples.library import write_skill
from tests.support.samples.one_skill import SKILL, OneSkill, open_skill


def replace_by_link(library: OneSkill) -> None:
    """Replace the folder by a link out of the source, which a scan refuses."""
    outside = library.root.parent / "outside"
    write_skill(outside, "kiln", body="# Kiln\n\nText number 9.\n")
    shutil.rmtree(library.root / "kiln")
    (library.root / "kiln").symlink_to(outside / "kiln")


@pytest.mark.parametrize("stays_by", ["", "pin", "review"])
def test_only_skills_that_neither_a_pin_nor_a_review_keeps_are_withdrawn(stays_by: str) -> None:
    given: dict[str, Any] = {"policy": {"review": ["lib"]}} if stays_by == "review" else {}
    with open_skill() as library:
        library.edit(1)
        library.ingest(1)
        if stays_by == "pin":
            library.pin(0)
        settings = library.services.settings
        library.services.settings = settings.model_validate(settings.model_dump() | given)
        replace_by_link(library)
        library.sync()
        [entry] = library.services.graph.get_entries([SKILL])
        if not stays_by:
            assert (entry.state, library.published_text()) == (SkillState.FAILED, "")
            return
        assert (entry.state, library.published_text()) == (
            SkillState.PUBLISHED,
            "Text number 1.",
        )
        library.ingest(1)  # decides the same
        assert library.published_text() == "Text number 1."
        (library.root / "kiln").unlink()
        library.sync()
        [entry] = library.services.graph.get_entries([SKILL])
        assert entry.state is SkillState.REMOVED


def test_a_new_skill_of_a_reviewed_source_fails() -> None:
    with open_skill(policy={"review": ["lib"]}) as library:
        library.edit(1)
        replace_by_link(library)
        library.sync()
        [entry] = library.services.graph.get_entries([SKILL])
        assert entry.state is SkillState.FAILED
        assert "out of the source" in entry.reason
