"""`skillbus eval bundles` and `skillbus eval ablation` over the examples."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from config.settings import OPTIONAL_STAGES
from tests.support.program.program import ROOT, Skillbus

EXAMPLES = ROOT / "examples"


def write_tasks(path: Path, *rows: Mapping[str, object]) -> str:
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return str(path)


def test_bundles(examples: Skillbus, tmp_path: Path) -> None:
    out = tmp_path / "bundles.json"
    report = examples(
        "eval", "bundles", str(EXAMPLES / "tasks.jsonl"), "--budget", "1500", "--budget", "8000",
        "--out", str(out), "--json",
    ).data  # fmt: skip
    small, large = report["budgets"]["1500"]["metrics"], report["budgets"]["8000"]["metrics"]
    assert large["complete"] >= 0.5
    assert large["recall"] >= small["recall"]
    assert small["tokens"] <= 1500
    assert large["tokens"] <= 8000
    predictions = json.loads(out.read_text(encoding="utf-8"))
    assert all(row.keys() == {"1500", "8000"} for row in predictions.values())


def test_a_task_that_no_skill_answers(examples: Skillbus, tmp_path: Path) -> None:
    tasks = write_tasks(
        tmp_path / "tasks.jsonl",
        {"task_id": "x", "instruction": "qwv zzkj plomf", "gt_skill_ids": []},
    )
    text = examples("eval", "bundles", tasks, "--tokens", "2000").out
    assert "true_no_hit" in text
    metrics = examples("eval", "bundles", tasks, "--json").data["budgets"]["4000"]["metrics"]
    assert metrics == {"true_no_hit": 1.0}


def test_ablation(examples: Skillbus, tmp_path: Path) -> None:
    out = tmp_path / "table.md"
    task = json.loads((EXAMPLES / "tasks.jsonl").read_text(encoding="utf-8").splitlines()[0])
    tasks = write_tasks(tmp_path / "tasks.jsonl", task)
    data = examples("eval", "ablation", tasks, "--bundle", "8000", "--out", str(out), "--json").data
    names = [row["name"] for row in data["rows"]]
    assert names[0] == "all stages"
    assert {f"without {stage}" for stage in OPTIONAL_STAGES} < set(names)
    assert out.read_text(encoding="utf-8").count("\n| without ") == len(OPTIONAL_STAGES)


def test_tasks_of_another_library_are_refused(examples: Skillbus, tmp_path: Path) -> None:
    row = {"task_id": "x", "instruction": "bake bread", "gt_skill_ids": ["shop:bread"]}
    other = write_tasks(tmp_path / "other.jsonl", row)
    for command in ("routing", "bundles", "ablation"):
        assert "the library has none of" in examples("eval", command, other, code=2).err
