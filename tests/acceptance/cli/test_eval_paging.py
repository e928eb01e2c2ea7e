"""`skillbus eval paging` with every method, over the examples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest

from config.bundle_settings import PassageSettings
from tests.support.program.program import ROOT, Skillbus

EXAMPLES = ROOT / "examples"
QUERIES = str(EXAMPLES / "queries.jsonl")
METHODS = ("f", "mmr", "topk", "graph", "chunks", "full")


@pytest.mark.parametrize("method", METHODS)
def test_every_method_picks_lines_in_order(examples: Skillbus, tmp_path: Path, method: str) -> None:
    out = tmp_path / "picked.json"
    report = examples(
        "eval", "paging", QUERIES, "--method", method, "--out", str(out), "--json"
    ).data
    picked = json.loads(out.read_text(encoding="utf-8"))
    assert report["queries"] == len(picked) == 8
    for ranges in picked.values():
        assert ranges == sorted(ranges)
        assert all(first <= last for first, last in ranges)
    if method == "full":
        assert report["sufficient"] == 1.0
        assert report["token_reduction"] < 0.1


def test_missing_less_sends_more(examples: Skillbus) -> None:
    less, more = (
        examples("eval", "paging", QUERIES, "--miss", miss, "--json").data for miss in ("0.8", "0")
    )
    assert less["token_reduction"] > more["token_reduction"]
    assert less["required_recall"] <= more["required_recall"]


def test_what_cannot_be_is_said(examples: Skillbus) -> None:
    without = ("eval", "paging", QUERIES, "--without", "paging")
    assert examples(*without, "--json").data["queries"] == 8
    assert "--without paging" in examples(*without, "--method", "topk", code=2).err


def test_lines_that_the_skill_does_not_have_are_refused(examples: Skillbus, tmp_path: Path) -> None:
    row = json.loads(Path(QUERIES).read_text(encoding="utf-8").splitlines()[0])
    path = tmp_path / "queries.jsonl"
    path.write_text(json.dumps(row | {"required": [[1, 9999]]}) + "\n", encoding="utf-8")
    assert "is not a line range" in examples("eval", "paging", str(path), code=2).err


def test_methods_of_queries_are_methods_of_eval() -> None:
    assert set(get_args(PassageSettings.model_fields["method"].annotation)) <= set(METHODS)
