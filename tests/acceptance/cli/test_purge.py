"""`skillbus skills purge`: no byte of the text is left in any file of the home."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.support.program.program import ForkServer, Skillbus, wait_for
from tests.support.program.traces import find_traces
from tests.support.samples.library import write_skill, write_topics

SECRET = "crafts:secret-glaze"
WORDS = ("quixzotter", "vlumbering", "zaffrepond", "wobblecask")
"""Distinctive words: of the first and the second text, the description, and another file."""

OTHER = "brindlemoor"
TASK = "mix the secret glaze and stir it twice"


UPLOAD = {
    "specversion": "1.0",
    "id": "1",
    "source": "test",
    "type": "skillbus.skill.upserted.v1",
    "data": {
        "skill_id": "sent:uploaded-glaze",
        "files": {
            "SKILL.md": "---\nname: uploaded-glaze\ndescription: Mix krellvane.\n---\n"
            "# Glaze\n\nStir the krellvane.\n"
        },
    },
}


def write_secret(root: Path, word: str) -> Path:
    body = "\n\n".join(
        f"## Step {number}\n\nMix the {word} with number {number * 7919 % 1009} and stir twice."
        for number in range(60)
    )
    folder = write_skill(root, "secret-glaze", f"Mix a zaffrepond glaze {word}", f"{body}\n")
    (folder / "mix.sh").write_text("echo wobblecask\n", encoding="utf-8")
    return folder


@pytest.fixture(params=["alone", "served"])
def skillbus(request: pytest.FixtureRequest, fork_server: ForkServer, tmp_path: Path) -> Any:
    """A library with a skill of two texts, an answer that quotes it, and others."""
    root = write_topics(tmp_path / "crafts")
    write_skill(root, "other-glaze", f"Mix a plain glaze {OTHER}")
    made = Skillbus(fork_server, tmp_path / "home", SKILLBUS_WORKERS__KEEP_SECONDS="0")
    with made.serving() if request.param == "served" else nullcontext():
        for word in WORDS[:2]:
            write_secret(root, word)
            made("sync", str(root))
        if request.param == "served":
            with made.client() as client:
                query_id = client.post("/v1/queries", json={"task": TASK}).json()["id"]
                client.get(f"/v1/queries/{query_id}?wait=30")
        else:
            assert SECRET in made.chosen(TASK)
        yield made


def test_no_byte_of_the_text_is_left(skillbus: Skillbus) -> None:
    home, root = skillbus.home, skillbus.home.parent / "crafts"
    assert len(skillbus("skills", "history", SECRET, "--json").data) == 2
    before = {trace.rpartition(": ")[2] for trace in find_traces(home, [*WORDS[:3], OTHER])}
    assert before == {*WORDS[:3], OTHER}  # the search finds what is there
    labelled = {"task_id": "1", "instruction": TASK, "gt_skill_ids": [SECRET]}
    (home.parent / "tasks.jsonl").write_text(json.dumps(labelled), encoding="utf-8")
    skillbus("eval", "routing", str(home.parent / "tasks.jsonl"))
    shutil.rmtree(root / "secret-glaze")
    report = skillbus("skills", "purge", SECRET, "--yes", "--json").data
    assert report["evaluated_prompts"] == 1
    assert report["revisions"] >= 1
    assert report["kept_revisions"] >= 1
    assert report["comes_back"] == ""
    assert find_traces(home, WORDS) == []
    assert find_traces(home, [OTHER])
    assert SECRET not in skillbus.skills()
    assert "crafts:other-glaze" in skillbus.chosen(f"Mix a plain glaze {OTHER}")
    assert "is kept" in skillbus("skills", "history", SECRET).out
    skillbus("sync", str(root))
    assert find_traces(home, WORDS) == []


def test_what_its_source_still_has_may_come_back(skillbus: Skillbus) -> None:
    result = skillbus("skills", "purge", SECRET, "--yes")
    assert "still has secret-glaze" in result.err
    traces = find_traces(skillbus.home, WORDS)
    # `serve` may have read its source meanwhile.
    assert not traces or skillbus.skills()[SECRET]["state"] in {"pending", "published"}
    write_secret(skillbus.home.parent / "crafts", "newtext")
    skillbus("sync", str(skillbus.home.parent / "crafts"))
    assert skillbus.skills()[SECRET]["state"] == "published"


@pytest.mark.parametrize("skillbus", ["alone"], indirect=True)
def test_it_asks_once_and_refuses_what_it_does_not_know(skillbus: Skillbus) -> None:
    for answer in ("n\n", ""):
        result = skillbus.start("skills", "purge", SECRET, stdin=answer).wait()
        assert (result.code, "nothing was removed" in result.err) == (2, True)
    assert SECRET in skillbus.skills()
    assert "no skill" in skillbus("skills", "purge", "crafts:none", "--yes", code=2).err
    unknown = skillbus("skills", "purge", "crafts:none", code=2, stdin="y\n")
    assert "no skill" in unknown.err
    assert "Remove" not in unknown.out + unknown.err
    (skillbus.home / "index.old").mkdir()
    refused = skillbus("skills", "purge", SECRET, "--yes", code=2)
    assert "reindex --drop-old" in refused.err
    (skillbus.home / "index.old").rmdir()
    asked = skillbus.start("skills", "purge", SECRET, stdin="y\n").wait()
    assert asked.code == 0, asked.err
    assert "removed 1 revision of the index" in asked.out
    assert SECRET not in skillbus.skills()


def test_an_uploaded_skill_leaves_no_event_and_no_package(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    made = Skillbus(fork_server, tmp_path / "home")
    made("sync", str(write_topics(tmp_path / "crafts")))
    skill_id = "sent:uploaded-glaze"
    with made.serving(), made.client() as client:
        assert client.post("/v1/events", json=UPLOAD).status_code == 202
        wait_for(lambda: made.skills().get(skill_id, {}).get("state") == "published")
        query_id = client.post("/v1/queries", json={"task": "stir a krellvane glaze"}).json()["id"]
        bundle = wait_for(lambda: client.get(f"/v1/queries/{query_id}").json().get("bundle"))
        assert skill_id in [one["skill_id"] for one in bundle["skills"]]
        traces = find_traces(made.home, ["Stir the krellvane"])
        assert {one.split(":")[0].partition("/")[0] for one in traces} >= {"index", "uploads"}
        report = client.delete(f"/v1/skills/{skill_id}/revisions").json()
        assert (report["jobs"], report["comes_back"]) == (2, "")
        assert find_traces(made.home, ["Stir the krellvane", "mix krellvane"]) == []
        assert client.get(f"/v1/queries/{query_id}").status_code == 404
        assert client.delete("/v1/skills/sent:none/revisions").status_code == 404
