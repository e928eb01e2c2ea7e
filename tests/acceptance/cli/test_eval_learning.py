"""`skillbus eval learning` over the examples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.program.program import Skillbus

PROMPTS = {
    "examples:api-client-retries": (
        "our post to the payment partner lost its connection, may we send it again?",
        "how often should the client retry a request that timed out?",
        "the call to the partner failed with 503, how long do we back off?",
    ),
    "examples:on-call-handover": (
        "write the page for the colleague who takes the pager tomorrow",
        "hand over the pager: which alerts can be ignored",
    ),
    "examples:log-triage": (
        "reduce half an hour of log lines to the distinct problems",
        "count the distinct errors in docks.log and the first time of each",
    ),
    "examples:excel-export": (
        "make a workbook with one sheet a station",
        "export the rides as xlsx with dates that stay dates",
    ),
    "examples:backup-and-restore": ("restore last night's backup",),
}


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    rows = [
        {"task_id": f"{skill_id}-{number}", "instruction": text, "gt_skill_ids": [skill_id]}
        for skill_id, texts in PROMPTS.items()
        for number, text in enumerate(texts)
    ]
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return str(path)


def test_every_stream_is_replayed_alike(examples: Skillbus, prompts: str, tmp_path: Path) -> None:
    out = tmp_path / "learning.json"
    command = ("eval", "learning", prompts, "--seed", "3", "--json")
    data = examples(*command, "--out", str(out), "--plots", str(tmp_path / "plots")).data
    assert json.loads(out.read_text(encoding="utf-8")) == data
    assert data["replayed"] + data["held_out"] + data["of_new_skills"] == 10
    assert data["left_out"] == 0
    for arms in data["scenarios"].values():
        assert arms.keys() == {"without", "memory", "links", "training", "all"}
        for checkpoints in arms.values():
            assert checkpoints[-1]["replayed"] == data["replayed"]
            assert all(0 <= one["held_out"]["Hit@1"] <= 1 for one in checkpoints)
    assert "places_gained_by_poisoned" in data["scenarios"]["poisoned"]["memory"][-1]
    assert len(list((tmp_path / "plots").glob("learning-*.svg"))) == len(data["scenarios"])
    again = examples(*command, "--scenario", "poisoned").data["scenarios"]
    assert again == {"poisoned": data["scenarios"]["poisoned"]}


def test_outcomes_of_the_library_itself_stay_as_they_are(examples: Skillbus, prompts: str) -> None:
    before = examples("outcomes", "export").out
    table = examples("eval", "learning", prompts, "--scenario", "clean", "--arm", "memory").out
    assert table.count("| clean |") == 2
    assert examples("outcomes", "export").out == before


def test_wrong_input(examples: Skillbus, tmp_path: Path) -> None:
    single = tmp_path / "single.jsonl"
    single.write_text(
        json.dumps({"task_id": "a", "instruction": "b", "gt_skill_ids": ["examples:log-triage"]}),
        encoding="utf-8",
    )
    assert "no skill has two prompts" in examples("eval", "learning", str(single), code=2).err
    unknown = tmp_path / "unknown.jsonl"
    rows = [{"task_id": str(n), "instruction": "b", "gt_skill_ids": ["shop:x"]} for n in range(4)]
    unknown.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    error = examples("eval", "learning", str(unknown), code=2).err
    assert all(part in error for part in (str(unknown), "shop:x", "examples:"))


def test_prompts_for_skills_that_are_missing_are_left_out(
    examples: Skillbus, prompts: str, tmp_path: Path
) -> None:
    given = tmp_path / "more.jsonl"
    row = {"task_id": "x", "instruction": "fold a crane", "gt_skill_ids": ["shop:origami"]}
    given.write_text(Path(prompts).read_text("utf-8") + "\n" + json.dumps(row), encoding="utf-8")
    command = ("--scenario", "clean", "--arm", "memory", "--json")
    ran = examples("eval", "learning", str(given), *command)
    assert "1 of 11 prompts are left out" in ran.err
    assert "shop:origami" in ran.err
    assert ran.data["left_out"] == 1
