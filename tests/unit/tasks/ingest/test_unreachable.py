"""Ingest while the root of a source is missing, or a skill's folder for a moment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from config.errors import TransientError
from graph.records import SkillState, Source
from tasks.ingest.ingest import ingest
from tasks.policies import Deadline
from tests.support.samples.library import write_skill
from tests.support.samples.one_skill import SKILL, OneSkill, open_skill

OTHER = "other:tide-tables"


def request(library: OneSkill, *skills: tuple[str, str, str]) -> None:
    graph = library.services.graph
    graph.request_ingest(list(skills), graph.allocate_sequence(1)[0])


def state_of(library: OneSkill, skill_id: str) -> SkillState:
    [entry] = library.services.graph.get_entries([skill_id])
    return entry.state


def test_a_missing_root_withdraws_no_skill_and_does_not_hold_up_other_sources() -> None:
    with open_skill() as library:
        library.edit(1)
        library.ingest(1)
        away = library.root.with_name("away")
        library.root.rename(away)
        other = library.root.with_name("other")
        write_skill(other, "tide-tables")
        library.services.graph.save_source(Source("other", "directory", str(other)))
        request(library, (SKILL, "lib", "kiln"), (OTHER, "other", "tide-tables"))
        with pytest.raises(TransientError, match=r"lib is missing"):
            ingest(library.services, Deadline(60), [SKILL, OTHER])
        assert library.published_text() == "Text number 1."
        assert state_of(library, OTHER) is SkillState.PUBLISHED
        away.rename(library.root)
        library.edit(2)
        ingest(library.services, Deadline(60), [SKILL, OTHER])
        assert library.published_text() == "Text number 2."


def test_a_folder_that_was_away_during_the_ingest_only_is_found_by_the_next_sync(
    tmp_path: Path,
) -> None:
    with open_skill() as library:
        library.edit(1)
        os.utime(library.root / "kiln" / "SKILL.md", (1e9, 1e9))
        library.sync()
        (library.root / "kiln").rename(tmp_path / "kiln")
        library.run_ingest()
        assert state_of(library, SKILL) is SkillState.REMOVED
        (tmp_path / "kiln").rename(library.root / "kiln")
        library.sync()
        library.run_ingest()
        assert library.published_text() == "Text number 1."
