"""Training an encoder from pairs: it learns, and goes on where it was stopped."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from config.errors import PermanentError
from config.settings import EncoderSettings
from search.models.encoder import load_network
from search.models.load_models import encoder_identity, load_encoder
from search.models.low_rank import ADAPTER_FILE, add_adapter, apply_adapter, take_adapter
from search.protocol import Vector
from tests.support.samples.reranking import write_cross_encoder
from workers.training.encoder.bi_encoder import check_base
from workers.training.encoder.encoder_pairs import (
    EncoderOptions,
    EncoderTrainingSet,
    TrainingPair,
)
from workers.training.encoder.encoder_training import (
    evaluate_encoder,
    make_encoder_card,
    train_encoder,
)
from workers.training.query_origins import LABELLED, OWN_TEXT
from workers.training.trainer import CHECKPOINT

LETTERS = "abcdefghij"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a tiny sentence-transformers model, random weights, that reads letters."""
    folder = tmp_path_factory.mktemp("base")
    network = load_network(write_cross_encoder(folder / "bert", body="encoder"), "cpu")
    network.save(str(folder / "encoder"), create_model_card=False)
    return str(folder / "encoder")


def training_set(base: str, **options: object) -> EncoderTrainingSet:
    """Ten skills, each a letter said often; its query is the next letter."""
    texts = {f"x:{letter}": f"{letter} {letter} {letter}" for letter in LETTERS}
    following = dict(zip(LETTERS, LETTERS[1:] + LETTERS[0], strict=True))
    pairs = [
        TrainingPair(OWN_TEXT, following[letter], (f"x:{letter}",), "", ("x:z",))
        for letter in LETTERS
    ]
    chosen: dict[str, Any] = {"batch_size": 5, "learning_rate": 3e-2, "rank": 4}
    chosen |= {"query_prompt": "z "} | options
    return EncoderTrainingSet(
        EncoderOptions(base, ("en",), **chosen),
        pairs,
        [TrainingPair(LABELLED, pair.query, pair.needed) for pair in pairs],
        texts | {"x:z": "z z z"},
        {},
        (*sorted(texts), "x:z"),
        {name: name for name in texts},
    )


def quiet(done: int, total: int) -> None:
    del done, total


def weights(folder: Path) -> dict[str, np.ndarray]:
    return load_file(folder / ADAPTER_FILE)


@pytest.mark.parametrize(
    "options",
    [
        {"rank": 16, "learning_rate": 1e-3, "temperature": 0.05, "epochs": 300},
        {"rank": 0, "learning_rate": 1e-2, "epochs": 60},
    ],
)
def test_what_it_learnt_is_in_the_folder(
    base: str, tmp_path: Path, options: dict[str, float]
) -> None:
    made = training_set(base, **options)
    losses = train_encoder(made, tmp_path, 1, 100, quiet)
    assert np.mean(losses[-5:]) < 0.6 * np.mean(losses[:5])
    report = evaluate_encoder(made, tmp_path, quiet)
    found = report["held_out"][LABELLED]
    assert found["queries"] == found["repositories"] == 10
    assert found["trained"]["hit@1"] > found["base"]["hit@1"]
    assert found["mrr_gain"][0] > 0
    assert report["wins"]
    card = make_encoder_card(made, report)
    assert card["pairs"] == {OWN_TEXT: 10}
    trained = EncoderSettings(model=str(tmp_path))
    encoder = load_encoder(trained)
    assert encoder.languages == {"en"}
    assert encoder_identity(trained) == (encoder.model, encoder.dimension)
    # The prompt that it was trained with is part of the model.
    assert encoder.encode_queries(["a"]) == pytest.approx(encoder.encode_texts(["z a"]), abs=1e-6)


def test_empty_prompts_of_a_training_are_part_of_the_model(base: str, tmp_path: Path) -> None:
    """Models of the family of the base have prompts otherwise."""
    folder = tmp_path / "my-e5-small"
    shutil.copytree(base, folder)
    made = training_set(str(folder), query_prompt="", passage_prompt="")
    train_encoder(made, tmp_path, 1, 100, quiet)
    encoder = load_encoder(EncoderSettings(model=str(tmp_path)))
    assert encoder.encode_queries(["a"]) == pytest.approx(encoder.encode_texts(["a"]), abs=1e-6)


def test_a_trained_model_is_trained_further_with_its_prompts(base: str, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    train_encoder(training_set(base), first, 1, 100, quiet)
    further = training_set(str(first), query_prompt=None)
    train_encoder(further, second, 1, 100, quiet)
    assert further.prompts == {"query": "z ", "document": ""}


def test_the_adapter_makes_the_base_the_trained_model(base: str, tmp_path: Path) -> None:
    train_encoder(training_set(base, epochs=10), tmp_path, 1, 100, quiet)
    network = load_network(base, "cpu")
    before = network.encode(["a b"])
    apply_adapter(network[0].auto_model, tmp_path / ADAPTER_FILE)
    trained = load_network(str(tmp_path), "cpu").encode(["a b"])
    assert network.encode(["a b"]) == pytest.approx(trained, abs=1e-6)
    assert np.abs(before - trained).max() > 1e-2
    assert (tmp_path / ADAPTER_FILE).stat().st_size < 10_000
    assert not (tmp_path / "model.safetensors").exists()
    (tmp_path / "other").write_bytes(b"nothing")
    with pytest.raises(PermanentError, match="not an adapter"):
        apply_adapter(network[0].auto_model, tmp_path / "other")


def test_it_goes_on_where_it_was_stopped(base: str, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    train_encoder(training_set(base, epochs=3), whole, 1, 100, quiet)

    def stop(done: int, total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_encoder(training_set(base, epochs=3), parts, 1, 100, stop)
    assert (parts / CHECKPOINT).exists()
    assert len(train_encoder(training_set(base, epochs=3), parts, 1, 100, quiet)) == 2
    for name, values in weights(whole).items():
        assert weights(parts)[name] == pytest.approx(values, abs=1e-6)


def test_a_checkpoint_of_another_rank_is_refused(base: str, tmp_path: Path) -> None:
    train_encoder(training_set(base), tmp_path, 1, 100, quiet)
    with pytest.raises(PermanentError, match=r"not a checkpoint of this training.*--fresh"):
        train_encoder(training_set(base, rank=8), tmp_path, 1, 100, quiet)


def test_a_model_that_learnt_nothing_does_not_win(base: str, tmp_path: Path) -> None:
    made = training_set(base, learning_rate=1e-9)
    train_encoder(made, tmp_path, 1, 100, quiet)
    report = evaluate_encoder(made, tmp_path, quiet)
    assert not report["wins"]
    assert made.options.get_base_settings().query_prompt == "z "


class FlatEncoder:
    """An encoder that maps all texts to the same vector."""

    def encode_texts(self, texts: Sequence[str]) -> Vector:
        return np.ones((len(texts), 1), np.float32)

    encode_queries = encode_texts


def test_a_model_for_which_all_texts_are_alike_finds_nothing(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoders = iter([load_encoder(EncoderSettings(model=base)), FlatEncoder()])
    monkeypatch.setattr(
        "workers.training.encoder.encoder_training.load_encoder", lambda _: next(encoders)
    )
    report = evaluate_encoder(training_set(base), tmp_path, quiet)
    assert report["held_out"][LABELLED]["trained"]["hit@1"] == 0.0
    assert report["held_out"][LABELLED]["trained"]["mrr"] == pytest.approx(1 / 6, abs=1e-4)
    assert not report["wins"]


def test_an_adapter_is_trained_further(base: str, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    train_encoder(training_set(base, epochs=4), first, 1, 100, quiet)
    train_encoder(training_set(str(first), epochs=4), second, 1, 100, quiet)
    settings = EncoderSettings(model=str(second))
    encoder = load_encoder(settings)
    assert encoder_identity(settings) == (encoder.model, encoder.dimension)
    before = load_encoder(EncoderSettings(model=str(first)))
    assert np.abs(encoder.encode_texts(["a b"]) - before.encode_texts(["a b"])).max() > 1e-3
    assert encoder.encode_queries(["a"]) == pytest.approx(encoder.encode_texts(["z a"]), abs=1e-6)
    # Another base under the same adapter is another model.
    (first / CHECKPOINT).unlink()
    train_encoder(training_set(base, epochs=1), first, 1, 100, quiet)
    assert encoder_identity(settings) != (encoder.model, encoder.dimension)


def test_the_last_layers_alone_are_adapted() -> None:
    import torch

    layers = torch.nn.ModuleDict(
        {"layer": torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in "abc")}
    )
    assert len(add_adapter(layers, 2, layers=1)) == 2
    assert {name.split(".")[1] for name in take_adapter(layers)} == {"2"}


def test_the_base_is_loaded_before_pairs_are_mined(base: str, tmp_path: Path) -> None:
    folder = shutil.copytree(base, tmp_path / "model")
    options = EncoderOptions(str(folder), ("en",))
    check_base(options)
    (folder / "model.safetensors").unlink()
    with pytest.raises(PermanentError, match="cannot be loaded"):
        check_base(options)
