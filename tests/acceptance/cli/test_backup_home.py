"""`skillbus backup` and `restore` of a home, while it is used; bad backups are refused."""

from __future__ import annotations

import json
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
    """Made while `serve` runs."""
    folder = tmp_path_factory.mktemp("backups") / "monday"
    with library.serving():
        report = library("backup", str(folder), "--json").data
    assert report["skills"] == 11
    assert report["missing"] == 0
    return folder


@pytest.fixture
def empty(fork_server: ForkServer, tmp_path: Path) -> Skillbus:
    return Skillbus(fork_server, tmp_path / "restored")


@pytest.fixture
def copy(backup: Path, tmp_path: Path) -> Path:
    """A copy of the backup to be damaged."""
    return Path(shutil.copytree(backup, tmp_path / "copy"))


def answer(skillbus: Skillbus, task: str = TASK) -> list[tuple[Any, ...]]:
    found = skillbus("query", task, "--format", "json").data
    return [
        (skill["skill_id"], skill["score"], skill["probability"], skill["passages"])
        for skill in found["skills"]
    ]


def test_everything_is_restored_and_goes_on(
    library: Skillbus, crafts: Path, backup: Path, empty: Skillbus
) -> None:
    assert "11 skills restored" in empty("restore", str(backup)).out
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


def test_a_home_with_a_library_is_left_alone(library: Skillbus, backup: Path) -> None:
    before = snapshot(library.home)
    error = library("restore", str(backup), code=2).err
    assert "exists: restore into a home without a library" in error
    assert snapshot(library.home) == before


def test_a_folder_in_use_takes_no_backup(library: Skillbus, backup: Path) -> None:
    assert "is not empty" in library("backup", str(backup), code=2).err


def test_there_is_no_backup_without_a_library(empty: Skillbus, tmp_path: Path) -> None:
    assert "no library" in empty("backup", str(tmp_path / "none"), code=2).err
    assert not (tmp_path / "none").exists()


def refused(empty: Skillbus, folder: Path) -> str:
    """The message; nothing is restored."""
    error = empty("restore", str(folder), code=2).err
    assert not empty.home.exists()
    return error


def test_an_interrupted_backup_is_refused(empty: Skillbus, copy: Path) -> None:
    (copy / "manifest.json").unlink()
    assert "holds no complete backup" in refused(empty, copy)
    assert "holds no complete backup" in refused(empty, copy / "none")


def test_a_damaged_backup_is_refused(empty: Skillbus, copy: Path) -> None:
    with (copy / "graph.db").open("r+b") as file:
        file.seek(5000)
        file.write(b"\xff")
    assert "is damaged: graph.db has changed" in refused(empty, copy)
    (copy / "graph.db").unlink()
    assert "is incomplete: graph.db is missing" in refused(empty, copy)
    (copy / "manifest.json").write_text("{", encoding="utf-8")
    assert "is damaged: manifest.json" in refused(empty, copy)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("format", 99, "format 99, this version of skillbus reads 1"),
        ("kind", "servers", "is of a library on servers"),
    ],
)
def test_a_backup_of_something_else_is_refused(
    empty: Skillbus, copy: Path, field: str, value: object, message: str
) -> None:
    manifest = json.loads((copy / "manifest.json").read_text(encoding="utf-8"))
    (copy / "manifest.json").write_text(json.dumps(manifest | {field: value}), encoding="utf-8")
    assert message in refused(empty, copy)


def test_only_their_owner_reads_the_files_whoever_made_the_folder(
    library: Skillbus, tmp_path: Path
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o755)
    library("backup", str(folder))
    assert (folder / "uploads" / "sources").is_dir()
    found = [path.relative_to(folder) for path in folder.rglob("*") if path.stat().st_mode & 0o077]
    assert found == []


def test_a_home_with_the_log_of_a_deleted_catalog_is_left_alone(
    empty: Skillbus, backup: Path
) -> None:
    empty.home.mkdir()
    (empty.home / "graph.db-wal").write_bytes(b"left by a killed process")
    error = empty("restore", str(backup), code=2).err
    assert "graph.db-wal exists: restore into a home without a library" in error
    assert not (empty.home / "index").exists()


def test_an_empty_folder_of_uploads_is_filled(empty: Skillbus, backup: Path) -> None:
    uploads = empty.home / "uploads"
    (uploads / "sources").mkdir(parents=True)
    (uploads / "sources" / "sent").write_bytes(b"an upload")
    assert f"{uploads} is not empty" in empty("restore", str(backup), code=2).err
    (uploads / "sources" / "sent").unlink()
    empty("restore", str(backup))
    assert answer(empty, "set up a sundial")[0][3]


def test_only_their_owner_reads_the_files_of_a_restored_home(empty: Skillbus, backup: Path) -> None:
    empty.home.mkdir(mode=0o755)
    empty("restore", str(backup))
    databases = list(empty.home.glob("*.db"))
    assert len(databases) >= 4
    assert [path.name for path in databases if path.stat().st_mode & 0o077] == []


def test_a_library_of_another_encoder_leaves_no_folder_behind(
    library: Skillbus, tmp_path: Path
) -> None:
    folder = tmp_path / "tuesday"
    other = library.with_environment(SKILLBUS_ENCODER__PASSAGE_PROMPT="passage")
    assert "skillbus reindex" in other("backup", str(folder), code=1).err
    assert not folder.exists()
