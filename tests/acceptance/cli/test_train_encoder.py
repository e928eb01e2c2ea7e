"""`skillbus train encoder` on the examples, then a library with the trained model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.support.program.program import ROOT, ForkServer, Skillbus

EXAMPLES = ROOT / "examples"
SHORT = (
    "--pairs",
    "1",
    "--tokens",
    "32",
    "--rank",
    "2",
    "--layers",
    "1",
    "--threads",
    "1",
    "--batch-size",
    "16",
)


def test_a_trained_encoder_serves_a_library(
    examples: Skillbus, fork_server: ForkServer, tmp_path: Path
) -> None:
    out, feedback = tmp_path / "model", str(EXAMPLES / "tasks.jsonl")
    said = examples("train", "encoder", "--out", str(out), "--feedback", feedback, *SHORT).out
    assert "held-out labelled prompts" in said
    assert "candidates for negatives filtered by: name" in said
    card = json.loads((out / "skillbus.json").read_text(encoding="utf-8"))
    assert card["pairs"]["labelled prompts"] > 0
    assert card["pairs"]["own text"] > 0
    assert set(card["filtered"]) == {"name", "overlap", "vector"}
    assert ("not recommended" in said) != card["wins"]
    assert (out / "adapter.safetensors").stat().st_size < 500_000
    other = Skillbus(fork_server, tmp_path / "home")
    other.env["SKILLBUS_ENCODER__MODEL"] = str(out)
    for skill in ("log-triage", "map-tiles", "rebalancing-forecast", "rebalancing-route-plan"):
        shutil.copytree(EXAMPLES / "skills" / skill, tmp_path / "some" / skill)
    other("sync", str(tmp_path / "some"))
    task = "which stations run dry, and how do the vans drive to fill them"
    assert other("query", task, "--format", "json").data["status"] == "SKILL_HIT"
    rows = {row["check"]: row for row in other("doctor", "--json").data}
    assert rows["encoder"]["state"] == "ok"
    assert str(out) in json.dumps(rows["encoder"])
