"""`skillbus reindex` of a home: to another model, while it answers."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from search.blob_codec import pack_forward, unpack_forward
from search.models.identity import SMALL_MODEL, model_path
from search.protocol import ForwardRecord
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


def add_kiln(skillbus: Skillbus, description: str) -> None:
    """Sync a skill of a source of its own."""
    folder = skillbus.home.parent / "more" / "kiln"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(
        f"---\nname: kiln\ndescription: {description}\n---\n# Kiln\n\nWarm it slowly.\n",
        encoding="utf-8",
    )
    skillbus("sync", str(folder.parent), "--source", "more")


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
    add_kiln(moved, "Fire pots in an oven")
    found = moved("query", "fire pots in an oven", "--format", "json").data
    assert found["skills"][0]["skill_id"] == "more:kiln"


def test_it_copies_while_a_process_writes_and_switches_afterwards(
    library: Skillbus, model: Path
) -> None:
    from workers.backend.home import WriterLock

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


def test_skills_of_an_older_parser_are_parsed_again(library: Skillbus) -> None:
    count = library("status", "--json").data["skills"]["published"]
    with closing(sqlite3.connect(library.home / "graph.db")) as connection, connection:
        connection.execute("UPDATE skills SET parser = 0")
    assert f"outdated     {count} skills of an older version" in library("status").out
    checks = {row["check"]: row for row in library("doctor", "--json").data}
    assert f"{count} of an older version of the parser" in checks["catalog"]["detail"]
    report = library("reindex", "--json").data
    assert report == {"copied": 0, "old": "", "new": "", "reparsed": count}
    assert library("status", "--json").data["outdated"] == 0
    assert "nothing to do" in library("reindex", code=2).err


def forward_records(home: Path) -> dict[str, ForwardRecord]:
    """The forward record of each skill in the index of a home."""
    with closing(sqlite3.connect(home / "index" / "revisions.sqlite")) as connection:
        rows = connection.execute("SELECT skill_id, forward FROM revisions").fetchall()
    return {skill_id: unpack_forward(blob) for skill_id, blob in rows}


def make_older(home: Path) -> None:
    """Turn the index of a home into one of the version before records had examples."""
    with closing(sqlite3.connect(home / "index" / "revisions.sqlite")) as connection, connection:
        connection.execute("UPDATE meta SET value = '1.2' WHERE name = 'schema'")
        for skill_id, record in forward_records(home).items():
            old = replace(record, examples=record.examples[:0], excluded=())
            connection.execute(
                "UPDATE revisions SET forward = ? WHERE skill_id = ?", (pack_forward(old), skill_id)
            )


def test_an_index_of_an_earlier_version_is_refused_until_it_is_analysed_again(
    library: Skillbus,
) -> None:
    add_kiln(library, 'Use when the user says "fire my pots". Not for glass; use anneal instead.')
    before = forward_records(library.home)
    kiln = before["more:kiln"]
    assert len(kiln.examples)
    assert kiln.excluded
    make_older(library.home)
    assert not len(forward_records(library.home)["more:kiln"].examples)

    assert "skillbus reindex" in library("query", TASK, code=1).err
    checks = {row["check"]: row for row in library("doctor", "--json", code=1).data}
    assert checks["index"]["state"] == "failed"
    assert "skillbus reindex" in checks["index"]["detail"]

    assert library("reindex", "--json").data["copied"] == len(before)
    after = forward_records(library.home)
    assert {name: pack_forward(record) for name, record in after.items()} == {
        name: pack_forward(record) for name, record in before.items()
    }
    assert library("query", TASK, "--format", "json").data["status"] == "SKILL_HIT"
    assert "nothing to do" in library("reindex", code=2).err


def test_an_index_of_a_storage_that_this_version_cannot_read(library: Skillbus) -> None:
    with closing(sqlite3.connect(library.home / "index" / "revisions.sqlite")) as connection:
        connection.execute("UPDATE meta SET value = '9.3' WHERE name = 'schema'")
        connection.commit()
    refused = library("reindex", code=2).err
    assert "schema 9.3" in refused
    assert "sync the sources" in refused
