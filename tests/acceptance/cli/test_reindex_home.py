"""`skillbus reindex` of a home: to another model, while it answers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from search.models.encoder import SMALL_MODEL, model_path
from tests.support.program.program import ROOT, ForkServer, Skillbus

TASK = "After last night's frost, which e-bikes get a fresh battery first?"


@pytest.fixture
def library(skillbus: Skillbus, tmp_path: Path) -> Skillbus:
    """Some of the examples."""
    root = tmp_path / "skills"
    for folder in sorted((ROOT / "examples" / "skills").iterdir())[1:6]:
        shutil.copytree(folder, root / folder.name)
    skillbus("sync", str(root), "--source", "examples", code=4)
    return skillbus


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small model, as a folder."""
    folder = tmp_path / "model"
    shutil.copytree(model_path(SMALL_MODEL), folder)
    return folder


def with_model(skillbus: Skillbus, model: Path) -> Skillbus:
    other = Skillbus(skillbus.server, skillbus.home)
    other.env["SKILLBUS_ENCODER__MODEL"] = str(model)
    return other


def test_a_home_is_moved_to_another_model(
    library: Skillbus, model: Path, fork_server: ForkServer
) -> None:
    before = library("query", TASK, "--format", "json").data
    moved = with_model(library, model)
    assert "skillbus reindex" in moved("query", TASK, code=1).err
    report = moved("reindex", "--json").data
    assert report["copied"] == library("status", "--json").data["skills"]["published"]
    after = moved("query", TASK, "--format", "json").data
    assert after["skills"][0]["skill_id"] == before["skills"][0]["skill_id"]
    assert "nothing to do" in moved("reindex", code=2).err
    assert moved("doctor", "--json").data
    assert "index.old" in moved("reindex", "--drop-old").out
    assert "no old index" in moved("reindex", "--drop-old").out
    # Publishing goes on in the new index.
    skill = library.home.parent / "more" / "kiln"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(
        "---\nname: kiln\ndescription: Fire pots in an oven\n---\n# Kiln\n\nWarm it slowly.\n",
        encoding="utf-8",
    )
    moved("sync", str(skill.parent), "--source", "more")
    found = moved("query", "fire pots in an oven", "--format", "json").data
    assert found["skills"][0]["skill_id"] == "more:kiln"


def test_it_copies_while_a_process_writes_and_switches_afterwards(
    library: Skillbus, model: Path
) -> None:
    from workers.backend.writer_lock import WriterLock

    moved = with_model(library, model)
    lock = WriterLock(library.home)
    lock.acquire()
    try:
        refused = moved("reindex", code=2)
        assert "the new index is ready" in refused.err
        assert library("query", TASK, "--format", "json").data["status"] == "SKILL_HIT"
    finally:
        lock.release()
    assert moved("reindex", "--json").data["copied"] == 0
    assert moved("query", TASK, "--format", "json").data["status"] == "SKILL_HIT"
