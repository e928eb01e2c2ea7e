"""`skills`, `sources`, `status`, `doctor` and `config`: how a library stands."""

from __future__ import annotations

import shutil
import time
from contextlib import closing
from pathlib import Path

from graph.local.store import SqliteSkillGraph
from tests.support.program.program import Skillbus, run_installed
from tests.support.samples.former_catalog import forget_scans
from tests.support.samples.library import TOPICS, write_skill

LISTED = {"skill_id", "name", "seq", "content_hash", "state", "reason"}


def test_the_version_needs_no_library(tmp_path: Path) -> None:
    result = run_installed("--version", home=tmp_path)
    assert result.out.startswith("skillbus, version ")
    assert not list(tmp_path.iterdir())


def test_skills_are_listed(library: Skillbus) -> None:
    rows = library("skills", "list", "--json").data
    assert len(rows) == 11
    assert all(row.keys() >= LISTED for row in rows)
    failed = library("skills", "list", "--state", "failed", "--json").data
    assert [row["skill_id"] for row in failed] == ["crafts:broken"]
    assert failed[0]["seq"] is None
    assert "no source" in library("skills", "list", "--source", "elsewhere", code=2).err
    assert "crafts:kiln-firing" in library("skills", "list").out
    scripts = {row["skill_id"]: row["has_scripts"] for row in rows}
    assert scripts.pop("crafts:broken") is None
    assert set(scripts.values()) == {False}
    unknown = library("skills", "list", "--has-scripts", "unknown", "--json").data
    assert [row["skill_id"] for row in unknown] == ["crafts:broken"]
    assert library("skills", "list", "--has-scripts", "true", "--json").data == []
    assert len(library("skills", "list", "--has-scripts", "false", "--json").data) == 10
    library("skills", "list", "--has-scripts", "maybe", code=2)


def test_a_list_by_scripts_says_what_is_not_known(copied: Skillbus) -> None:
    by_scripts = ("skills", "list", "--has-scripts", "false", "--json")
    listed = copied(*by_scripts)
    assert len(listed.data) == 10
    assert "are not listed" not in listed.err
    with closing(SqliteSkillGraph(copied.home / "graph.db", writable=True)) as graph:
        forget_scans(graph)
    listed = copied(*by_scripts)
    assert listed.data == []
    assert "are not listed" in listed.err
    unknown = copied("skills", "list", "--has-scripts", "unknown", "--state", "published", "--json")
    assert len(unknown.data) == 10


def test_a_skill_is_shown_with_its_passages(library: Skillbus) -> None:
    data = library("skills", "show", "crafts:kiln-firing", "--json").data
    assert data["state"] == "published"
    assert data["licence"] == "MIT"
    assert data["passages"][0]["lines"][0] > 1
    assert "kiln-firing" in library("skills", "show", "crafts:kiln-firing").out
    shown = library("skills", "show", "crafts:broken").out
    assert "the file has no text" in shown
    assert "skills list" in library("skills", "show", "crafts:none", code=2).err


def test_links_are_shown_with_what_they_rest_on(skillbus: Skillbus, tmp_path: Path) -> None:
    root = tmp_path / "shop"
    write_skill(root, "ledger-reader", "Read the ledger of the shop")
    write_skill(root, "old-ledger", "Fill in the ledger of former years")
    body = "## Related skills\n\n- `ledger-reader`\n\nUse `tax-table` or `old-ledger`.\n"
    fields = {"depends": "[ledger-reader]", "incompatible_with": "[old-ledger]"}
    write_skill(root, "month-end", "Close the month", body, **fields)
    skillbus("sync", str(root))
    links = skillbus("skills", "show", "shop:month-end", "--json").data["links"]
    shown = {(link["type"], link["target"]): link for link in links}
    needed = shown["dependency", "shop:ledger-reader"]
    assert (needed["source"], needed["owner"]) == ("shop:month-end", "shop:month-end")
    assert (needed["weight"], needed["confidence"]) == (1.0, 0.97)
    assert needed["evidence"].startswith("depends, line ")
    assert shown["conflict", "shop:old-ledger"]["evidence"].startswith("conflicts, line ")
    assert ("dependency", "shop:old-ledger") not in shown
    text = skillbus("skills", "show", "shop:month-end").out
    assert "  dependency   -> shop:ledger-reader (1.00, 0.97: depends, line " in text
    back = skillbus("skills", "show", "shop:old-ledger").out
    assert "  conflict     <- shop:month-end (1.00, 0.97: conflicts, line " in back


def test_status(library: Skillbus) -> None:
    report = library("status", "--json").data
    counts = {"published": 10, "failed": 1, "removed": 0, "waiting": 0, "held": 0}
    assert report["skills"] == counts
    assert report["embedded_share"] == report["paging_done"] == 1.0
    assert report["open_events"] == report["open_queries"] == 0
    assert not report["serving"]
    assert "10 published, 0 pending, 1 failed" in library("status").out


def test_doctor_finds_nothing_wrong(library: Skillbus) -> None:
    checks = library("doctor", "--json").data
    assert {row["state"] for row in checks} == {"ok"}
    assert {"disk", "encoder", "catalog", "index", "sources"} <= {row["check"] for row in checks}


def test_doctor_says_what_to_do(skillbus: Skillbus, folder: Path) -> None:
    assert "nothing synced yet" in skillbus("doctor").out
    skillbus("sync", str(folder))
    folder.rename(folder.with_name("moved"))
    result = skillbus("doctor", code=1)
    assert "skillbus sources remove crafts" in result.out


def test_config_show(library: Skillbus, skillbus: Skillbus) -> None:
    assert library("config", "show", "--json").data["home"] == str(library.home)
    assert "[passages]" in library("config", "show").out
    skillbus.home.mkdir()
    (skillbus.home / "skillbus.toml").write_text("[choice]\ntop = 3\n", encoding="utf-8")
    assert skillbus("config", "show", "--json").data["choice"]["top"] == 3
    (skillbus.home / "skillbus.toml").write_text("[choice]\ntop = 0\n", encoding="utf-8")
    result = skillbus("config", "show", code=2)
    assert "choice.top" in result.err
    assert "skillbus.toml" in result.err
    (skillbus.home / "skillbus.toml").write_text("[choice\n", encoding="utf-8")
    assert "skillbus.toml" in skillbus("config", "show", code=2).err


def test_a_removed_skill_stays_away_until_its_folder_changes(
    skillbus: Skillbus, folder: Path
) -> None:
    time.sleep(0.2)
    skillbus("sync", str(folder))
    skill_id = "crafts:tide-tables"
    assert "removed" in skillbus("skills", "remove", skill_id).out
    assert skill_id not in skillbus.skills()
    assert skill_id not in skillbus.chosen("read tide tables")
    skillbus("sync", str(folder))
    assert skill_id not in skillbus.skills()
    with (folder / "tide-tables" / "SKILL.md").open("a", encoding="utf-8") as file:
        file.write("\nMore.\n")
    skillbus("sync", str(folder))
    assert skill_id in skillbus.skills()
    assert (folder / "tide-tables" / "SKILL.md").exists()
    skillbus("skills", "remove", "crafts:none", code=2)


def test_sources_come_and_go(skillbus: Skillbus, folder: Path, tmp_path: Path) -> None:
    skillbus("sync", str(folder))
    second = tmp_path / "second"
    shutil.copytree(folder, second)
    skillbus("sync", str(second))
    rows = skillbus("sources", "list", "--json").data
    assert [(row["source_id"], row["published"], row["reachable"]) for row in rows] == [
        ("crafts", 10, True),
        ("second", 10, True),
    ]
    assert str(second) in skillbus("sources", "list").out
    assert "10 skills removed" in skillbus("sources", "remove", "second").out
    assert set(skillbus.skills()) == {f"crafts:{name}" for name in TOPICS}
    assert [row["source_id"] for row in skillbus("sources", "list", "--json").data] == ["crafts"]
    assert "sources list" in skillbus("sources", "remove", "second", code=2).err
    skillbus("sync", str(second))
    assert len(skillbus.skills()) == 20


def test_a_skill_that_was_never_published_has_nothing_to_compare(library: Skillbus) -> None:
    for command in (("skills", "diff"), ("review", "show"), ("findings",)):
        refused = library(*command, "crafts:broken", code=2)
        assert "crafts:broken could not be read: " in refused.err


def test_a_source_whose_folder_is_gone_cannot_be_refreshed(
    skillbus: Skillbus, folder: Path
) -> None:
    skillbus("sync", str(folder))
    folder.rename(folder.with_name("away"))
    refused = skillbus("sources", "refresh", "crafts", code=2).err
    assert f"{folder} does not exist" in refused
    with skillbus.serving():
        assert skillbus("sources", "refresh", "crafts", code=2).err == refused


def test_names_of_folders_cannot_control_the_terminal(skillbus: Skillbus, folder: Path) -> None:
    hostile, broken = "crafts:a\x1b[2Jb", "crafts:c\x1b[2Jd"
    shutil.copytree(folder / "kiln-firing", folder / "a\x1b[2Jb")
    (folder / "c\x1b[2Jd").mkdir()
    (folder / "c\x1b[2Jd" / "SKILL.md").write_bytes(b"")
    link = ("crafts:kiln-firing", hostile, "alternative")
    runs = [
        skillbus("sync", str(folder), "--dry-run"),
        skillbus("sync", str(folder), code=4),
        skillbus("failures"),
        skillbus("skills", "show", "crafts:kiln-firing"),
        skillbus("links", "dismiss", *link, "--reason", "a copy"),
        skillbus("links", "restore", *link),
        skillbus("skills", "remove", hostile),
        skillbus("upload", str(folder), "--source", "mine", code=2),
        skillbus("skills", "diff", broken, code=2),
    ]
    for run in runs:
        assert "[hidden characters: 1]" in run.out + run.err or "\\x1b" in run.err, run
        assert "\x1b" not in run.out + run.err, run
