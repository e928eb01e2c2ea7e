"""`skillbus sync`: a folder in, and kept in step."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.support.program.program import Skillbus, run_installed, wait_for
from tests.support.samples.library import TOPICS, Folder, write_skill

IDS = {f"crafts:{name}" for name in TOPICS}


def test_the_installed_command_syncs_and_answers(folder: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    synced = run_installed("sync", str(folder), home=home)
    assert synced.code == 0, synced.err
    assert "10 skills found, 10 new or changed, 0 removed" in synced.out
    assert "searchable: 10 skills" in synced.err
    answer = run_installed("query", "glaze stoneware in a kiln", "--format", "json", home=home)
    assert answer.code == 0, answer.err
    assert answer.data["skills"][0]["skill_id"] == "crafts:kiln-firing"


def test_nothing_is_done_twice(skillbus: Skillbus, folder: Path) -> None:
    first = skillbus("sync", str(folder), "--json").data
    assert (first["found"], first["changed"], first["removed"]) == (10, 10, 0)
    assert first["published"] == first["embedded"] == 10
    former = (first["paged"], first["paged_seconds"])
    assert former == (first["embedded"], first["embedded_seconds"])
    before = skillbus.skills()
    assert set(before) == IDS
    assert {row["state"] for row in before.values()} == {"published"}
    again = skillbus("sync", str(folder), "--json").data
    assert (again["found"], again["changed"], again["removed"]) == (10, 0, 0)
    assert skillbus.skills() == before


def test_edits_renames_and_removals_are_noticed(skillbus: Skillbus, folder: Path) -> None:
    skillbus("sync", str(folder))
    before = skillbus.skills()
    write_skill(folder, "tide-tables", "Charter a zeppelin for an aerial survey")
    (folder / "bee-keeping").rename(folder / "hive-inspection")
    shutil.rmtree(folder / "violin-setup")
    report = skillbus("sync", str(folder), "--json").data
    assert (report["changed"], report["removed"]) == (2, 2)
    after = skillbus.skills()
    assert set(after) == (IDS - {"crafts:bee-keeping", "crafts:violin-setup"}) | {
        "crafts:hive-inspection"
    }
    edited = "crafts:tide-tables"
    assert after[edited]["seq"] > before[edited]["seq"]
    assert after[edited]["content_hash"] != before[edited]["content_hash"]
    assert skillbus.chosen("charter a zeppelin")[0] == edited
    assert "crafts:violin-setup" not in skillbus.chosen("fit a violin bridge")
    assert skillbus.chosen("count varroa mites in a hive")[0] == "crafts:hive-inspection"


def test_an_edit_of_another_file_is_a_new_revision(skillbus: Skillbus, folder: Path) -> None:
    skillbus("sync", str(folder))
    before = skillbus.skills()
    (folder / "map-projection" / "notes.md").write_text("Use a conic one.", encoding="utf-8")
    skillbus("sync", str(folder))
    changed = {name for name, row in skillbus.skills().items() if row != before[name]}
    assert changed == {"crafts:map-projection"}


def test_a_skill_inside_a_skill_is_one_of_its_own(skillbus: Skillbus, folder: Path) -> None:
    write_skill(folder, "kiln-firing/glazes/celadon", "Mix a celadon glaze")
    write_skill(folder, "node_modules/hidden", "Never to be seen")
    write_skill(folder, ".git/hooks", "Never to be seen")
    skillbus("sync", str(folder))
    before = skillbus.skills()
    assert set(before) == IDS | {"crafts:kiln-firing/glazes/celadon"}
    write_skill(folder, "kiln-firing/glazes/celadon", "Mix a darker celadon glaze")
    skillbus("sync", str(folder))
    changed = {name for name, row in skillbus.skills().items() if row != before[name]}
    assert changed == {"crafts:kiln-firing/glazes/celadon"}


def test_the_root_itself_may_be_a_skill(skillbus: Skillbus, tmp_path: Path) -> None:
    root = write_skill(tmp_path, "kiln-firing")
    skillbus("sync", str(root), "--source", "one")
    assert set(skillbus.skills()) == {"one:."}
    assert skillbus.chosen("fire stoneware in a kiln") == ["one:."]
    (root / "SKILL.md").unlink()
    skillbus("sync", str(root), "--source", "one")
    assert not skillbus.skills()


def test_a_dry_run_changes_nothing(skillbus: Skillbus, folder: Path) -> None:
    report = skillbus("sync", str(folder), "--dry-run", "--json").data
    assert set(report["new"]) == IDS
    assert not (skillbus.home / "graph.db").exists()
    skillbus("sync", str(folder))
    before = skillbus.skills()
    write_skill(folder, "tide-tables", "Another description")
    shutil.rmtree(folder / "violin-setup")
    write_skill(folder, "new-one")
    report = skillbus("sync", str(folder), "--dry-run", "--json").data
    assert report["new"] == ["crafts:new-one"]
    assert report["changed"] == ["crafts:tide-tables"]
    assert report["removed"] == ["crafts:violin-setup"]
    assert "changed: 1\n  crafts:tide-tables" in skillbus("sync", str(folder), "--dry-run").out
    assert skillbus.skills() == before


def test_it_may_end_when_all_is_searchable(skillbus: Skillbus, folder: Path) -> None:
    report = skillbus("sync", str(folder), "--until", "searchable", "--json").data
    assert not {"embedded_seconds", "paged_seconds"} & set(report)
    assert skillbus.chosen("fire stoneware in a kiln")[0] == "crafts:kiln-firing"
    report = skillbus("sync", str(folder), "--json").data
    assert report["changed"] == 0
    assert report["embedded"] == 10


def test_newly_failed_skills_are_an_exit_code(skillbus: Skillbus, folder: Path) -> None:
    (folder / "star-charts" / "SKILL.md").write_bytes(b"")
    result = skillbus("sync", str(folder), "--json", code=4)
    assert [row["skill_id"] for row in result.data["newly_failed"]] == ["crafts:star-charts"]
    skills = skillbus.skills()
    assert skills["crafts:star-charts"]["state"] == "failed"
    assert "star-charts" in skills["crafts:star-charts"]["reason"]
    assert sum(row["state"] == "published" for row in skills.values()) == 9
    again = skillbus("sync", str(folder), code=0)
    assert "1 of its skills still fails" in again.err
    write_skill(folder, "star-charts")
    assert "fail" not in skillbus("sync", str(folder), code=0).err
    assert skillbus.skills()["crafts:star-charts"]["state"] == "published"


def test_what_may_not_be_read_fails_alone(skillbus: Skillbus, folder: Path, tmp_path: Path) -> None:
    outside = write_skill(tmp_path / "outside", "secret")
    (folder / "linked-folder").symlink_to(outside)
    (folder / "linked-file").mkdir()
    (folder / "linked-file" / "SKILL.md").symlink_to(outside / "SKILL.md")
    large = write_skill(folder, "large")
    with (large / "SKILL.md").open("a", encoding="utf-8") as file:
        file.write("much text\n" * 300_000)
    skillbus("sync", str(folder), code=4)
    skills = skillbus.skills()
    reasons = {name: row["reason"] for name, row in skills.items() if row["state"] == "failed"}
    assert set(reasons) == {"crafts:linked-folder", "crafts:linked-file", "crafts:large"}
    assert "link leads out of the source" in reasons["crafts:linked-folder"]
    assert "link leads out of the source" in reasons["crafts:linked-file"]
    assert "limits.skill_bytes" in reasons["crafts:large"]
    listed = skillbus("failures").out
    assert all(name in listed for name in reasons)
    assert {row["skill_id"] for row in skillbus("failures", "--json").data} == set(reasons)
    for path in (folder / "linked-folder", folder / "linked-file" / "SKILL.md"):
        path.unlink()
    shutil.rmtree(large)
    skillbus("sync", str(folder), code=0)
    assert set(skillbus.skills()) == IDS


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_skill_fails_alone(skillbus: Skillbus, folder: Path) -> None:
    (folder / "tide-tables" / "SKILL.md").chmod(0)
    skillbus("sync", str(folder), code=4)
    assert "permission" in skillbus.skills()["crafts:tide-tables"]["reason"]


def test_names_that_are_no_text_are_refused_by_name(skillbus: Skillbus, folder: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9"))
    odd.mkdir()
    shutil.copy(folder / "tide-tables" / "SKILL.md", odd / "SKILL.md")
    skillbus("sync", str(folder), code=4)
    failed = [row for row in skillbus.skills().values() if row["state"] == "failed"]
    assert ["caf" in row["skill_id"] for row in failed] == [True]
    assert "UTF-8" in failed[0]["reason"]


def test_a_folder_without_skills_cannot_be_synced(skillbus: Skillbus, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = skillbus("sync", str(tmp_path / "empty"), code=2)
    assert f"no SKILL.md found in {tmp_path / 'empty'}; name the folder" in result.err
    assert skillbus("sync", str(tmp_path / "empty"), "--dry-run", code=2).err == result.err
    assert skillbus("sources", "list", "--json").data == []


def test_a_source_id_belongs_to_one_root(skillbus: Skillbus, folder: Path, tmp_path: Path) -> None:
    skillbus("sync", str(folder))
    other = tmp_path / "other" / "crafts"
    write_skill(other, "soldering")
    result = skillbus("sync", str(other), "--group", "everyone", code=2)
    assert "crafts already exists with root" in result.err
    assert skillbus("sync", str(other), "--dry-run", code=2).err == result.err
    add = ("sources", "add", "https://example.org/team.git", "--source", "crafts")
    assert "already exists" in skillbus(*add, "--group", "everyone", code=2).err
    assert skillbus("sources", "groups", "crafts", "--json").data["default"]
    skillbus("sync", str(other), "--source", "more")
    assert "more:soldering" in skillbus.skills()
    bad = skillbus("sync", str(other), "--source", "a:b", code=2)
    assert "--source" in bad.err
    unset = skillbus("sync", str(other), "--source", "", code=2)
    assert "'' cannot be a source id" in unset.err
    add = ("sources", "add", "https://example.org/team.git", "--source", "")
    assert "source_id" in skillbus(*add, code=2).err


def test_an_interrupted_run_goes_on(skillbus: Skillbus, tmp_path: Path) -> None:
    root = Folder(tmp_path / "many", seed=7, size=60).root
    running = skillbus.start("sync", str(root))
    wait_for(lambda: (skillbus.home / "journal.db").exists())
    time.sleep(0.5)
    running.send(signal.SIGINT)
    ended = running.wait()
    assert ended.code == 130, ended.err
    assert "resumes with the next run" in ended.err
    assert "Traceback" not in ended.err
    skillbus("sync", str(root))
    assert {row["embedded"] for row in skillbus.skills().values()} == {True}
