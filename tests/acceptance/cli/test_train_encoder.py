"""`skillbus train encoder` on the examples, then a library with the trained model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from search.models.identity import (
    PACKAGED_ADAPTER,
    PLAIN_MODEL,
    SMALL_MODEL,
    TRAINING_FILE,
    base_model,
)
from search.models.low_rank import ADAPTER_FILE
from tests.support.program.program import ROOT, ForkServer, Skillbus
from tests.support.program.trainings import kill_and_resume

EXAMPLES = ROOT / "examples"
SHORT = ("--pairs", "2", "--tokens", "32", "--rank", "2", "--threads", "1", "--batch-size", "16")


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


def test_a_training_goes_on_after_a_kill(examples: Skillbus, tmp_path: Path) -> None:
    out = tmp_path / "model"
    args = ("train", "encoder", "--out", str(out), "--base", SMALL_MODEL, "--epochs", "3", *SHORT)
    kill_and_resume(examples, out, *args, "--checkpoint-steps", "1")


def write_adapter(folder: Path) -> None:
    """A model as an earlier training leaves it: the adapter of the default model."""
    folder.mkdir()
    shutil.copy(PACKAGED_ADAPTER, folder / ADAPTER_FILE)
    card = {"base": PLAIN_MODEL, "languages": ["en"], "prompts": {}}
    (folder / TRAINING_FILE).write_text(json.dumps(card))


def test_a_fresh_training_replaces_an_adapter(examples: Skillbus, tmp_path: Path) -> None:
    write_adapter(out := tmp_path / "model")
    every = ("--base", SMALL_MODEL, *SHORT, "--rank", "0", "--fresh")
    examples("train", "encoder", "--out", str(out), *every)
    assert not (out / ADAPTER_FILE).exists()
    assert base_model(str(out)) == str(out)


def test_the_folder_of_the_base_is_found_from_other_folders(
    examples: Skillbus, tmp_path: Path
) -> None:
    write_adapter(tmp_path / "first")
    folders = ("--out", "second", "--base", "first")
    examples("train", "encoder", *folders, *SHORT, cwd=tmp_path)
    assert base_model(str(tmp_path / "second")) == PLAIN_MODEL


def test_what_cannot_be_is_refused(examples: Skillbus, tmp_path: Path) -> None:
    out = str(tmp_path / "model")
    train = ("train", "encoder")
    assert "folds are counted from 0" in examples(*train, "--out", out, "--fold", "5", code=2).err
    none = str(tmp_path / "none")
    missing = examples(*train, "--out", out, "--feedback", none, code=2)
    assert "cannot be read" in missing.err
    assert "only an adapter" in examples(*train, "--out", out, "--rank", "0", code=2).err
    assert "cannot be loaded" in examples(*train, "--out", out, "--base", none, code=1).err
    pattern = examples(*train, "--out", out, "--repository", "[", code=2)
    assert "no regular expression" in pattern.err
    using = examples.with_environment(SKILLBUS_ENCODER__MODEL=f"{tmp_path}/./model")
    assert "is the model to start from" in using(*train, "--out", out, "--fresh", code=2).err
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    assert "other files" in examples(*train, "--out", str(tmp_path / "mine"), code=2).err
