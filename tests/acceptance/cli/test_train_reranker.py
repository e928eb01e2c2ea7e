"""`skillbus train reranker` on the examples, with a tiny model made on the spot; then its use."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.program.program import ROOT, Skillbus, wait_for
from tests.support.samples.refining import model_environment
from tests.support.samples.reranking import write_cross_encoder
from tests.support.servers.language_model import Asked, LanguageModelServer

EXAMPLES = ROOT / "examples"
TASK = "which stations run dry, and how do the vans drive to fill them"
SHORT = ("--queries", "1", "--max-length", "48", "--threads", "1")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_cross_encoder(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def trained(
    examples: Skillbus, base: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """A folder trained with feedback, and what was said about it."""
    out = tmp_path_factory.mktemp("trained") / "model"
    feedback = str(EXAMPLES / "tasks.jsonl")
    said = examples(
        "train", "reranker", "--out", str(out), "--base", base, "--feedback", feedback, *SHORT
    ).out
    return out, said


def with_model(skillbus: Skillbus, model: str) -> Skillbus:
    """The same library with a reranker by setting, and time enough for it on a busy machine."""
    other = Skillbus(skillbus.server, skillbus.home)
    other.env |= {
        "SKILLBUS_RERANKER__MODEL": model,
        "SKILLBUS_RERANKER__MILLISECONDS": "60000",
    }
    return other


def test_it_says_how_it_compares_on_what_was_held_out(trained: tuple[Path, str]) -> None:
    out, said = trained
    card = json.loads((out / "skillbus.json").read_text(encoding="utf-8"))
    assert card["held_out"]["labelled prompts"]["queries"] >= 1
    assert card["held_out"]["own text"]["queries"] >= 1
    assert "baseline" in said
    assert "combined" in said
    assert ("not better than the baseline" not in said) == card["wins"]
    assert {path.name for path in out.iterdir()} == {
        "config.json",
        "model.safetensors",
        "skillbus.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }


def test_a_query_uses_it_by_setting(examples: Skillbus, trained: tuple[Path, str]) -> None:
    plain = examples("query", TASK, "--explain", "--format", "json").data
    model = with_model(examples, str(trained[0]))
    data = model("query", TASK, "--explain", "--format", "json").data
    assert data["degraded"] == []
    before = {row["skill_id"] for row in plain["explain"]["candidates"]}
    assert {row["skill_id"] for row in data["explain"]["candidates"]} == before
    without = model("query", TASK, "--without", "rerank", "--format", "json").data
    assert [skill["skill_id"] for skill in without["skills"]] == [
        skill["skill_id"] for skill in plain["skills"]
    ]


def test_a_model_without_time_is_skipped_and_the_bundle_says_so(
    examples: Skillbus, trained: tuple[Path, str]
) -> None:
    model = with_model(examples, str(trained[0]))
    model.env["SKILLBUS_RERANKER__MILLISECONDS"] = "1"
    data = model("query", TASK, "--format", "json").data
    assert any("rerank was skipped" in reason for reason in data["degraded"])
    assert data["status"] == "SKILL_HIT"


def test_a_training_goes_on_after_a_kill(examples: Skillbus, base: str, tmp_path: Path) -> None:
    out = tmp_path / "model"
    args = ("train", "reranker", "--out", str(out), "--base", base, "--epochs", "4", *SHORT)
    command = (*args, "--batch-size", "4", "--checkpoint-steps", "1")
    process = examples.start(*command)
    wait_for((out / "checkpoint.safetensors").exists, 120)
    process.kill()
    assert not (out / "skillbus.json").exists()
    assert "a different seed" in examples(*command, "--seed", "5", code=2).err
    done = examples(*command, "--json")
    assert "resuming the training" in done.err
    assert json.loads((out / "skillbus.json").read_text(encoding="utf-8")) == done.data
    assert done.data["lists"] > 0
    assert "--fresh" in examples(*command, code=2).err


def test_a_library_that_is_too_small(skillbus: Skillbus, base: str, tmp_path: Path) -> None:
    root = tmp_path / "one"
    (root / "kiln").mkdir(parents=True)
    (root / "kiln" / "SKILL.md").write_text(
        "---\nname: kiln\ndescription: Fire pots in an oven\n---\n# Kiln\n\nWarm it slowly.\n",
        encoding="utf-8",
    )
    args = ("train", "reranker", "--out", str(tmp_path / "model"), "--base", base)
    assert f"no library in {skillbus.home} yet" in skillbus(*args, code=2).err
    skillbus("sync", str(root))
    assert "too few queries: 1 skill in en" in skillbus(*args, code=2).err


def test_doctor_looks_at_the_reranker(
    examples: Skillbus, trained: tuple[Path, str], tmp_path: Path
) -> None:
    rows = with_model(examples, str(trained[0]))("doctor", "--json").data
    assert {row["check"]: row["state"] for row in rows}["reranker"] == "ok"
    rows = with_model(examples, str(tmp_path / "none"))("doctor", "--json", code=1).data
    assert {row["check"]: row["state"] for row in rows}["reranker"] == "failed"
    assert "reranker" not in [row["check"] for row in examples("doctor", "--json").data]


def test_a_reranker_that_is_none_fails_the_query_clearly(
    examples: Skillbus, tmp_path: Path
) -> None:
    missing = with_model(examples, str(tmp_path / "none"))("query", TASK, code=1)
    assert "reranker.model" in missing.err


def test_prompts_that_a_language_model_wrote_are_learned_from(
    examples: Skillbus, base: str, tmp_path: Path
) -> None:
    def script(asked: Asked) -> dict[str, list[str]]:
        prompts = [f"Need number {asked.number}: sort parcels by weight before noon"]
        return {"prompts": prompts, "near_misses": []}

    other = examples.copy(tmp_path / "home")  # the library gets what the model writes
    out = tmp_path / "model"
    options = ("train", "reranker", "--out", str(out), "--base", base, *SHORT)
    with LanguageModelServer(script) as server:
        other.env |= model_environment(server.url, '["prompts"]')
        asked = other("refine", "--json").data["stages"]["prompts"]["refined"]
        said = other(*options).out
        assert server.requests == asked
    count = int(re.findall(r"prompts of the language model: (\d+)", said)[0])
    assert 1 < count <= asked
    card = json.loads((out / "skillbus.json").read_text(encoding="utf-8"))
    assert card["held_out"]["prompts of the language model"]["queries"] >= 1
    assert card["choices"]["prompts"] == "scripted-model"
