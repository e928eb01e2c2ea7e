"""The folder of a backup: rows of any values, and a catalog of which no label is left out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.errors import TransientError, UsageError
from config.settings import Settings
from graph.neo4j.catalog_backup import NODE_KEYS, Row, check_schema
from graph.neo4j.migrations import migrations
from search.models.identity import EncoderIdentity
from workers.backup.folder import (
    create_folder,
    private_files,
    read_lines,
    read_manifest,
    write_lines,
)
from workers.backup.folder import write_manifest as write
from workers.backup.home import back_up_home, restore_home

CYPHER = Path(__file__).resolve().parents[3] / "graph" / "neo4j" / "cypher"


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    rows = [
        [["Skill"], {"name": "秋\n ", "paged": True, "vector": b"\x00\xff"}],
        [b"key", bytearray(b"value"), 0],
        [{"base64": "text", "more": None}],
    ]
    write_lines(tmp_path / "rows", iter(rows))
    assert list(read_lines(tmp_path / "rows")) == rows


def test_a_value_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="set cannot be written to a backup"):
        write_lines(tmp_path / "rows", [{1, 2}])


def test_every_label_of_the_schema_is_backed_up() -> None:
    used = {
        label
        for file in CYPHER.rglob("*.cypher")
        for label in re.findall(r"\((?:\w+)?:([A-Z]\w+)", file.read_text(encoding="utf-8"))
    }
    assert used == set(NODE_KEYS)


def test_a_folder_is_for_its_owner_alone(tmp_path: Path) -> None:
    create_folder(tmp_path / "new" / "backup")
    assert (tmp_path / "new" / "backup").stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(UsageError, match="cannot be used for a backup"):
        create_folder(tmp_path / "file")
    with pytest.raises(UsageError, match="is not empty"):
        create_folder(tmp_path)


def test_a_manifest_with_an_unknown_field_is_damaged(tmp_path: Path) -> None:
    made = write(tmp_path, "home", EncoderIdentity("m", 2), 0, 0)
    assert read_manifest(tmp_path, "home") == made
    text = (tmp_path / "manifest.json").read_text(encoding="utf-8")
    (tmp_path / "manifest.json").write_text(text.replace('"skills"', '"skill"'), encoding="utf-8")
    with pytest.raises(UsageError, match=r"is damaged: manifest\.json"):
        read_manifest(tmp_path, "home")


def test_a_backup_that_cannot_be_looked_at_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"manifest\.json cannot be read: File name too long"):
        read_manifest(tmp_path / ("x" * 300), "home")


FILES = ("index/revisions.sqlite", "index/packs/rows", "graph.db", "uploads/sources/sent/a.zip")


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """A backup of a home, whose files have their own names as content."""
    folder = tmp_path / "backup"
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    write(folder, "home", EncoderIdentity("m", 2), 0, 0)
    return folder


def list_files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_what_is_restored_from_a_read_only_backup_can_be_written(
    backup: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    (home / "uploads" / "sources").mkdir(parents=True)  # an empty folder is filled
    for path in (backup, *backup.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    with private_files():
        restore_home(Settings(home=home), backup)
    for name in FILES:
        assert (home / name).read_text() == name
        assert (home / name).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("used", ["graph.db", "graph.db-wal", "index/meta", "uploads/sources/sent"])
def test_a_home_with_a_library_is_left_alone(backup: Path, tmp_path: Path, used: str) -> None:
    home = tmp_path / "home"
    (home / used).parent.mkdir(parents=True)
    (home / used).write_text("left by a killed process")
    with pytest.raises(UsageError, match=r"exists: restore into a home without|is not empty"):
        restore_home(Settings(home=home), backup)
    assert list_files(home) == {used}


def refused(backup: Path) -> str:
    """The message; nothing is restored."""
    home = backup.parent / "home"
    with pytest.raises(UsageError) as caught:
        restore_home(Settings(home=home), backup)
    assert not home.exists()
    return str(caught.value)


def test_an_incomplete_or_damaged_backup_is_refused(backup: Path) -> None:
    (backup / "graph.db").write_text("changed")
    assert "is damaged: graph.db has changed" in refused(backup)
    (backup / "graph.db").unlink()
    assert "is incomplete: graph.db is missing" in refused(backup)
    (backup / "manifest.json").write_text("{")
    assert "is damaged: manifest.json" in refused(backup)
    (backup / "manifest.json").unlink()
    assert "holds no complete backup" in refused(backup)
    assert "holds no complete backup" in refused(backup.with_name("none"))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("format", 99, "format 99, this version of skillbus reads 1"),
        ("kind", "servers", "is of a library on servers"),
    ],
)
def test_a_backup_of_something_else_is_refused(
    backup: Path, field: str, value: object, message: str
) -> None:
    manifest = json.loads((backup / "manifest.json").read_text())
    (backup / "manifest.json").write_text(json.dumps(manifest | {field: value}))
    assert message in refused(backup)


def test_there_is_no_backup_without_a_library(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no library"):
        back_up_home(Settings(home=tmp_path / "home"), tmp_path / "none", lambda *_: None)
    assert not (tmp_path / "none").exists()


def test_a_catalog_of_a_newer_version_is_refused() -> None:
    def rows(schema: int) -> list[Row]:
        values = [{"key": "seq", "value": 7}, {"key": "schema", "value": schema}]
        return [Row(("Meta",), one) for one in values]

    newest = max(migrations())
    check_schema(rows(newest))
    check_schema(rows(newest - 1))
    with pytest.raises(UsageError, match=f"has schema {newest + 1}"):
        check_schema(rows(newest + 1))
    with pytest.raises(UsageError, match="names no schema"):
        check_schema([Row(("Skill",), {"skill_id": "a:b"})])


def test_a_full_disk_is_not_taken_for_the_server_of_the_rows() -> None:
    with pytest.raises(TransientError, match="/dev/full cannot be written: No space left"):
        write_lines(Path("/dev/full"), [["row"]])


def test_an_error_of_the_rows_is_left_as_it_is(tmp_path: Path) -> None:
    def rows() -> Iterator[str]:
        yield "row"
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        write_lines(tmp_path / "rows", rows())
