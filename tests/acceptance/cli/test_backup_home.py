"""`skillbus backup` and `restore` of a home, while it is used."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.program.program import ForkServer, Skillbus
from tests.support.program.snapshot import snapshot
from tests.support.samples.library import write_skill, write_topics

TASK = "true a bicycle wheel"
BEST = "crafts:bicycle-repair"
UPLOAD = "---\nname: sundial\ndescription: Set up a sundial.\n---\n# Sundial\n\nPoint it north.\n"


@pytest.fixture(scope="module")
def crafts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_topics(tmp_path_factory.mktemp("library") / "crafts")


@pytest.fixture(scope="module")
def library(
    fork_server: ForkServer, crafts: Path, tmp_path_factory: pytest.TempPathFactory
) -> Skillbus:
    """Crafts with a reported outcome and an uploaded skill."""
    made = Skillbus(fork_server, tmp_path_factory.mktemp("library") / "home")
    made("sync", str(crafts))
    asked = made("query", TASK, "--format", "json").data
    made("outcome", asked["query_id"], BEST, "helped")
    uploaded = crafts.parent / "sundial" / "SKILL.md"
    uploaded.parent.mkdir()
    uploaded.write_text(UPLOAD, encoding="utf-8")
    made("upload", str(uploaded.parent), "--source", "sent")
    made("sync", str(crafts))  # also embeds the sections of what was uploaded
    return made


@pytest.fixture(scope="module")
def backup(library: Skillbus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made while `serve` runs, in a folder that everyone can read."""
    folder = tmp_path_factory.mktemp("backups")
    folder.chmod(0o755)
    with library.serving():
        report = library("backup", str(folder), "--json").data
    assert report["skills"] == 11
    assert report["missing"] == 0
    return folder


@pytest.fixture
def empty(fork_server: ForkServer, tmp_path: Path) -> Skillbus:
    return Skillbus(fork_server, tmp_path / "restored")


def answer(skillbus: Skillbus, task: str = TASK) -> list[tuple[Any, ...]]:
    found = skillbus("query", task, "--format", "json").data
    return [
        (skill["skill_id"], skill["score"], skill["probability"], skill["passages"])
        for skill in found["skills"]
    ]


def test_everything_is_restored_and_goes_on(
    library: Skillbus, crafts: Path, backup: Path, empty: Skillbus
) -> None:
    empty.home.mkdir(mode=0o755)
    assert "11 skills restored" in empty("restore", str(backup)).out
    assert read_by_others(empty.home) == []
    assert snapshot(empty.home) == snapshot(library.home)
    assert answer(empty) == answer(library)
    assert answer(empty)[0][0] == BEST
    counts = [one("outcomes", "export").out for one in (empty, library)]
    assert counts[0] == counts[1]
    assert answer(empty, "set up a sundial")[0][3]
    changed = Path(shutil.copytree(crafts, empty.home.parent / "crafts"))
    write_skill(changed, "lathe", "Turn a bowl on a lathe")
    empty("sync", str(changed), "--source", "more")
    assert answer(empty, "turn a bowl on a lathe")[0][0] == "more:lathe"


def read_by_others(folder: Path) -> list[str]:
    """What is in a folder and other users may read."""
    return [path.name for path in folder.rglob("*") if path.stat().st_mode & 0o077]


def test_only_their_owner_reads_the_files(backup: Path) -> None:
    assert (backup / "uploads" / "sources").is_dir()
    assert read_by_others(backup) == []


def test_a_library_of_another_encoder_leaves_no_folder_behind(
    library: Skillbus, tmp_path: Path
) -> None:
    folder = tmp_path / "tuesday"
    other = library.with_environment(SKILLBUS_ENCODER__PASSAGE_PROMPT="passage")
    assert "skillbus reindex" in other("backup", str(folder), code=1).err
    assert not folder.exists()
