"""Homes that cannot be used as they are: a clear message, nothing lost, and the advice works."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.program.program import Skillbus, wait_for
from tests.support.program.snapshot import leftovers, snapshot
from tests.support.samples.library import Folder, write_skill

TASK = "fire stoneware in an electric kiln"
READERS = (["query", TASK], ["skills", "list"], ["status"])


@pytest.fixture
def crafts(library: Skillbus) -> str:
    """The folder of the library of all tests, and of its copy."""
    return str(library.home.parent / "crafts")


def _failed(skillbus: Skillbus, *args: str, code: int = 1) -> str:
    error = skillbus(*args, code=code).err
    assert "Traceback" not in error
    assert str(skillbus.home) in error
    return error


def test_a_file_as_home(skillbus: Skillbus, folder: Path) -> None:
    skillbus.home.write_text("not a folder", encoding="utf-8")
    for command in (["sync", str(folder)], *READERS):
        error = _failed(skillbus, *command, code=2)
        assert "SKILLBUS_HOME" in error


def test_a_catalog_of_another_version(copied: Skillbus, crafts: str) -> None:
    with sqlite3.connect(copied.home / "graph.db") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    for command in (["sync", crafts], *READERS):
        assert "schema 99" in _failed(copied, *command)


def test_a_journal_of_another_version(copied: Skillbus, crafts: str) -> None:
    with sqlite3.connect(copied.home / "journal.db") as connection:
        connection.execute("UPDATE meta SET schema_version = 99")
    connection.close()
    assert "schema 99" in _failed(copied, "sync", crafts)


def test_an_index_of_another_model(copied: Skillbus, crafts: str) -> None:
    before = copied.skills()
    file = copied.home / "index" / "revisions.sqlite"
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE meta SET value = 'other-model' WHERE name = 'model'")
    connection.close()
    for command in (["sync", crafts], ["query", TASK]):
        assert "other-model" in _failed(copied, *command)
    assert copied.skills() == before, "never mixed, and nothing lost"


def test_a_damaged_catalog(skillbus: Skillbus, folder: Path) -> None:
    skillbus("sync", str(folder))
    expected = snapshot(skillbus.home)
    file = skillbus.home / "graph.db"
    _ruin(file)
    for command in (["sync", str(folder)], *READERS):
        assert "damaged" in _failed(skillbus, *command)
    assert "damaged" in skillbus("doctor", code=1).out
    file.rename(file.with_suffix(".bad"))
    skillbus("sync", str(folder))
    assert snapshot(skillbus.home) == expected
    write_skill(folder, "tide-tables", "Charter a zeppelin for an aerial survey")
    skillbus("sync", str(folder))
    bundle = skillbus("query", "charter a zeppelin", "--top", "1", "--format", "json").data
    assert "zeppelin" in bundle["skills"][0]["description"]


def test_a_new_catalog_with_an_old_index(skillbus: Skillbus, folder: Path) -> None:
    skillbus("sync", str(folder))
    (skillbus.home / "graph.db").unlink()
    for name in ("tide-tables", "star-charts"):
        write_skill(folder, name, f"Charter a zeppelin instead of {name}")
    skillbus("sync", str(folder))
    shown = skillbus("skills", "show", "crafts:tide-tables", "--json").data
    assert shown["content_hash"] == skillbus.skills()["crafts:tide-tables"]["content_hash"]
    found = skillbus("query", "charter a zeppelin", "--top", "2", "--format", "json").data
    assert {skill["name"] for skill in found["skills"]} == {"tide-tables", "star-charts"}
    assert all("zeppelin" in skill["description"] for skill in found["skills"])


@pytest.mark.parametrize("what", ["revisions.sqlite", "terms/meta.json", "terms/delta/meta.json"])
def test_a_damaged_index(copied: Skillbus, crafts: str, what: str) -> None:
    expected = snapshot(copied.home)
    _ruin(copied.home / "index" / what)
    for command in (["sync", crafts], ["query", TASK]):
        error = _failed(copied, *command)
        assert "delete that folder" in error
    folder_named = copied.home / "index" / ("terms" if "terms" in what else "")
    shutil.rmtree(folder_named)
    copied("sync", crafts)
    assert snapshot(copied.home) == expected
    assert copied.chosen(TASK)[0] == "crafts:kiln-firing"
    assert {row["state"] for row in copied("doctor", "--json").data} == {"ok"}


def test_a_damaged_journal(copied: Skillbus, crafts: str) -> None:
    before = copied.skills()
    file = copied.home / "journal.db"
    _ruin(file)
    assert "move it away" in _failed(copied, "sync", crafts)
    assert copied.chosen(TASK)[0] == "crafts:kiln-firing"
    file.rename(file.with_suffix(".bad"))
    copied("sync", crafts)
    assert copied.skills() == before


def _ruin(file: Path) -> None:
    """Overwrite a store and drop what SQLite could mend it with."""
    assert file.is_file()
    file.write_bytes(b"\x13\x37 no store " * 400)
    for end in ("-wal", "-shm"):
        file.with_name(file.name + end).unlink(missing_ok=True)


def test_two_writers_and_a_reader(skillbus: Skillbus, tmp_path: Path) -> None:
    root = Folder(tmp_path / "many", seed=5, size=60).root
    first = skillbus.start("sync", str(root))
    wait_for(lambda: any("bee-keeping" in skill_id for skill_id in _published(skillbus)))
    second = skillbus.start("sync", str(root))
    read = skillbus.start("query", "inspect a bee hive in spring", "--format", "json")
    assert read.wait().code == 0, read.text("err")
    assert read.wait().data["skills"]
    refused = second.wait()
    assert first.wait().code == 0
    assert refused.code == 2, refused.err
    assert f"process {first.pid}" in refused.err
    assert len(_published(skillbus)) == 60


def _published(skillbus: Skillbus) -> list[str]:
    result = skillbus.start("skills", "list", "--json").wait()
    listed = result.data if result.code == 0 else []
    return [row["skill_id"] for row in listed if row["state"] == "published"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    yield disk
    # Lazily: files of an index that was read stay mapped until they are collected.
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_full_disk(skillbus: Skillbus, small_disk: Path, tmp_path: Path) -> None:
    root = Folder(tmp_path / "many", seed=6, size=60).root
    other = Skillbus(skillbus.server, skillbus.home)
    other("sync", str(root))
    full = Skillbus(skillbus.server, small_disk / "home", SKILLBUS_WORKERS__KEEP_SECONDS="0")
    error = _failed(full, "sync", str(root))
    assert "full" in error
    subprocess.run(["mount", "-o", "remount,size=100m", str(small_disk)], check=True)
    full("sync", str(root))
    assert snapshot(full.home) == snapshot(other.home)
    assert leftovers(full.home)["missing"] == leftovers(full.home)["orphans"] == []
