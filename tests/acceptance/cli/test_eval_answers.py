"""`skillbus eval answers`: queries of the whole library, by budget, over the examples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.program.program import ROOT, Skillbus

EXAMPLES = ROOT / "examples"
QUERIES = EXAMPLES / "queries.jsonl"


def test_more_tokens_answer_more(examples: Skillbus, tmp_path: Path) -> None:
    out = tmp_path / "answers.json"
    report = examples(
        "eval", "answers", str(QUERIES), "--budget", "900", "--budget", "20000", "--json",
        "--out", str(out),
    ).data  # fmt: skip
    small, large = report["budgets"]["900"], report["budgets"]["20000"]
    assert small["tokens"] <= 900 < large["tokens"] <= 20_000
    assert small["complete"]["mean"] <= large["complete"]["mean"]
    assert large["skill"]["mean"] >= large["complete"]["mean"] > 0.5
    assert small["offered"]["mean"] >= small["skill"]["mean"]
    rows = [json.loads(line) for line in QUERIES.read_text(encoding="utf-8").splitlines()]
    given = json.loads(out.read_text(encoding="utf-8"))
    assert set(given) == {row["query_id"] for row in rows}
    complete = 0
    for row in rows:
        answer = given[row["query_id"]]
        assert answer["tokens"] <= 20_000
        assert bool(answer["skills"]) == bool(answer["tokens"])
        for ranges in answer["skills"].values():
            assert ranges == sorted(ranges)
            assert all(first <= last for first, last in ranges)
        shown = answer["skills"].get(row["skill_id"], [])
        lines = {line for first, last in shown for line in range(first, last + 1)}
        wanted = {line for first, last in row["required"] for line in range(first, last + 1)}
        text = EXAMPLES / "skills" / row["skill_id"].partition(":")[2] / "SKILL.md"
        body = text.read_text(encoding="utf-8").splitlines()
        complete += {line for line in wanted if body[line - 1].strip()} <= lines
    assert large["complete"]["mean"] == pytest.approx(complete / len(rows))


def test_the_table_has_a_row_for_each_default_budget(examples: Skillbus) -> None:
    text = examples("eval", "answers", str(QUERIES)).out
    for budget in ("2000", "4000", "8000"):
        assert budget in text
    assert "complete" in text


def test_labels_without_lines_are_refused(examples: Skillbus, tmp_path: Path) -> None:
    path = tmp_path / "queries.jsonl"
    row = json.loads(QUERIES.read_text(encoding="utf-8").splitlines()[0])
    path.write_text(json.dumps(row | {"required": []}) + "\n", encoding="utf-8")
    assert "is not a line range" in examples("eval", "answers", str(path), code=2).err
