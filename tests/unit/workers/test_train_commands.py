"""Commands of `skillbus train`: options, outputs, and what is kept when a training is resumed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from config.errors import PermanentError, UsageError
from config.settings import EncoderSettings, Settings
from search.models import installed
from search.models.identity import (
    PACKAGED_ADAPTER,
    PLAIN_MODEL,
    SMALL_MODEL,
    TRAINING_FILE,
    adapter_files,
    base_model,
)
from search.models.load_models import encoder_identity
from search.models.low_rank import ADAPTER_FILE
from tests.support.samples.roles import write_labelled
from workers.cli.evaluation import options as evaluation_options
from workers.cli.program import cli
from workers.cli.training.encoder import _choose as _choose_encoder
from workers.cli.training.encoder import encoder
from workers.cli.training.model_training import choose_options, prepare_folder, resume_or_build
from workers.cli.training.reranker import reranker
from workers.training.reranker.training_lists import RerankerOptions, TrainingSet
from workers.training.trainer import CHECKPOINT, TRAINING_SET_FILE, save_training_set


def fail(*_: object) -> Any:
    raise UsageError("too few skills")


def test_a_training_on_outcomes_is_resumed_whatever_was_reported_since(tmp_path: Path) -> None:
    settings = Settings().model_copy(update={"home": tmp_path / "home"})
    options = reranker.make_context("reranker", ["--out", str(tmp_path), "--outcomes"]).params
    chosen = choose_options(settings, RerankerOptions, options, languages=("en",))
    begun = TrainingSet(chosen)
    save_training_set(tmp_path, begun)
    assert resume_or_build(settings, options, chosen, TrainingSet, fail, fail) == begun


def write_adapter(folder: Path, base: str) -> str:
    """Write an adapter of a base as a training leaves it."""
    folder.mkdir()
    shutil.copy(PACKAGED_ADAPTER, folder / ADAPTER_FILE)
    (folder / TRAINING_FILE).write_text(json.dumps({"base": base, "languages": ["en"]}))
    return str(folder)


@pytest.mark.parametrize("out", ["first", "second", "second/../first"])
def test_no_part_of_the_model_to_start_from_is_overwritten(tmp_path: Path, out: str) -> None:
    first = write_adapter(tmp_path / "first", PLAIN_MODEL)
    second = write_adapter(tmp_path / "second", first)
    with pytest.raises(UsageError, match="is the model to start from, or one that it adapts"):
        prepare_folder(tmp_path / out, True, "encoder", second)
    assert (tmp_path / out / ADAPTER_FILE).exists()


def test_an_adapter_in_the_place_of_its_base_is_refused(tmp_path: Path) -> None:
    first = write_adapter(tmp_path / "first", PLAIN_MODEL)
    second = write_adapter(tmp_path / "second", first)
    assert adapter_files(second) == [Path(first) / ADAPTER_FILE, Path(second) / ADAPTER_FILE]
    assert base_model(second) == PLAIN_MODEL
    shutil.rmtree(first)
    shutil.move(second, first)
    with pytest.raises(PermanentError, match="move the folders back"):
        encoder_identity(EncoderSettings(model=first))


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--out", "", "is empty"),
        ("--seed", str(2**70), "is not in the range"),
        ("--seed", "-1", "range"),
    ],
)
def test_options_of_no_use_are_refused(option: str, value: str, said: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(encoder, ["--out", str(tmp_path), option, value])
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize("name", ["roles.json", "roles.npz"])
def test_predictions_do_not_replace_weights_or_card(name: str, tmp_path: Path) -> None:
    files = ["--out", str(tmp_path / "roles.npz"), "--predictions", str(tmp_path / name)]
    result = CliRunner().invoke(cli, ["train", "roles", "none.json", *files])
    assert "would overwrite the weights or model card" in str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("roles none.json --skills made={skills}", "none.json cannot be read"),
        ("roles {labels} --skills made", "expected SOURCE=DIR"),
        ("roles {labels} --skills made={skills}/none", "expected SOURCE=DIR"),
        ("roles {labels} --skills other={skills}", "--skills made=DIR"),
        ("roles {labels} --skills made={skills} --out {out}.bin", "name a .npz file"),
        ("roles {labels} --skills made={skills} --out none/a.npz", "is in no existing"),
        ("roles {labels} --predictions none/a.json", "is in no existing folder"),
        ("roles {labels}", "no library in"),
        ("encoder --out {out} --fold 5", "give a number from 0 to 4"),
        ("encoder --out {out} --feedback none", "cannot be read"),
        ("encoder --out {out} --rank 0", "only an adapter"),
        ("encoder --out {out} --rank 0 --layers 2", "--layers is for adapters"),
        ("encoder --out {out} --repository [", "not a regular expression"),
        ("encoder --out {skills}", "other files"),
        ("reranker --out {out} --fold 5", "give a number from 0 to 4"),
        ("reranker", "--out"),
        ("reranker --out {out} --feedback none", "cannot be read"),
        ("reranker --out {out} --feedback {rows}", "missing gt_skill_ids"),
        ("reranker --out {skills}", "other files"),
        ("reranker --out {labels}", "is a file"),
        ("reranker --out {out} --outcomes", "no library in"),
        ("ranker --outcomes", "no library in"),
        ("ranker {rows}", "missing gt_skill_ids"),
    ],
)
def test_what_is_wrong_is_said(
    arguments: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLBUS_HOME", str(tmp_path / "home"))
    skills, labels = write_labelled(tmp_path)
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"instruction": "x"}\n', encoding="utf-8")
    filled = arguments.format(skills=skills, labels=labels, rows=rows, out=tmp_path / "out")
    result = CliRunner().invoke(cli, ["train", *filled.split(" ")])
    assert said in f"{result.exception} {result.stderr}"
    assert isinstance(result.exception, UsageError) or result.exit_code == 2


def test_a_missing_package_is_named_before_the_prompts_are_ranked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKILLBUS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(installed, "find_spec", lambda package: None)
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"instruction": "x", "gt_skill_ids": ["a:b"]}\n', encoding="utf-8")
    result = CliRunner().invoke(cli, ["train", "ranker", str(rows)])
    assert "training a ranking needs scipy" in str(result.exception)


def test_a_fresh_training_replaces_a_model_only_once_its_data_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Path(write_adapter(tmp_path / "model", PLAIN_MODEL))
    made = TrainingSet(RerankerOptions("base", ("en",)))
    monkeypatch.setattr(evaluation_options, "open_library", lambda *_, wait: nullcontext())
    options = {"out": out, "fresh": True, "feedback": None, "outcomes": False}
    before = {one.name: one.read_bytes() for one in out.iterdir()}

    def run(build: Callable[..., TrainingSet]) -> TrainingSet:
        prepare_folder(out, True, "reranker", SMALL_MODEL)
        return resume_or_build(
            Settings(), options, made.options, TrainingSet, lambda _: None, build
        )

    with pytest.raises(UsageError, match="too few skills"):
        run(fail)
    assert {one.name: one.read_bytes() for one in out.iterdir()} == before
    (out / CHECKPOINT).touch()
    assert run(lambda *_: made) == made
    assert [one.name for one in out.iterdir()] == [TRAINING_SET_FILE]


def test_the_folder_of_the_base_is_found_from_other_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_adapter(tmp_path / "first", PLAIN_MODEL)
    monkeypatch.chdir(tmp_path)
    arguments = ["--out", "second", "--base", "first"]
    options = encoder.make_context("encoder", arguments).params
    assert _choose_encoder(Settings(), "first", options).base == str(tmp_path / "first")
