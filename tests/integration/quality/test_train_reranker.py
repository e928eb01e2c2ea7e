"""Training a cross-encoder from lists: it learns, and goes on where it was stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from config.errors import PermanentError
from search.models.identity import SMALL_MODEL
from search.models.reranker import CrossEncoderReranker
from tests.support.samples.reranking import write_cross_encoder
from workers.training.query_origins import LABELLED, OWN_TEXT
from workers.training.reranker.cross_encoder import CrossEncoderTrainer, check_base
from workers.training.reranker.reranker_training import (
    evaluate_on_held_out,
    make_reranker_card,
    train,
)
from workers.training.reranker.training_lists import (
    HeldOutQuery,
    RerankerOptions,
    TrainingList,
    TrainingSet,
)
from workers.training.trainer import CHECKPOINT

LETTERS = "abcdefghij"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_cross_encoder(tmp_path_factory.mktemp("base"))


def training_set(base: str, **training_options: object) -> TrainingSet:
    """Ten skills, each a letter said often; a query says the letter."""
    texts = {f"x:{letter}": f"{letter} {letter} {letter} z" for letter in LETTERS}
    lists = [
        TrainingList(
            f"{letter} {letter}",
            f"x:{letter}",
            tuple(sorted(set(texts) - {f"x:{letter}"})),
        )
        for letter in LETTERS
    ]
    held = [
        HeldOutQuery(LABELLED, "b b", ("x:b",), ("x:a", "x:b"), (2.0, 1.0)),
        HeldOutQuery(LABELLED, "q", ("x:none",), ("x:a", "x:b"), (2.0, 1.0)),
        HeldOutQuery(OWN_TEXT, "a", ("x:a",), ("x:a", "x:b"), (2.0, 1.0)),
        HeldOutQuery(OWN_TEXT, "nothing found", ("x:a",), (), ()),
    ]
    settings: dict[str, Any] = {"batch_size": 2, "max_length": 32, "learning_rate": 1e-2}
    settings |= training_options
    return TrainingSet(RerankerOptions(base, ("en",), **settings), lists, held, texts)


def quiet(done: int, total: int) -> None:
    del done, total


def weights(folder: Path) -> dict[str, np.ndarray]:
    return load_file(folder / "model.safetensors")


def test_the_loss_falls(base: str, tmp_path: Path) -> None:
    made = training_set(base, epochs=40)
    made.lists = [TrainingList("q", "x:a", ("x:b", "x:c"))]
    losses = train(made, tmp_path, 1, 100, quiet)
    assert len(losses) == 40
    assert np.mean(losses[:3]) == pytest.approx(np.log(3), abs=0.1)
    assert np.mean(losses[-3:]) < 0.7 * np.mean(losses[:3])


def test_it_goes_on_where_it_was_stopped(base: str, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    train(training_set(base, epochs=2), whole, 1, 100, quiet)

    def stop(done: int, total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(training_set(base, epochs=2), parts, 1, 100, stop)
    assert (parts / CHECKPOINT).exists()
    assert not (parts / "model.safetensors").exists()
    assert len(train(training_set(base, epochs=2), parts, 1, 100, quiet)) == 6
    for name, values in weights(whole).items():
        assert weights(parts)[name] == pytest.approx(values, abs=1e-6)


def test_a_power_cut_loses_only_what_came_after_the_checkpoint(base: str, tmp_path: Path) -> None:
    def cut(done: int, total: int) -> None:
        if done == 5:
            raise MemoryError

    with pytest.raises(MemoryError):
        train(training_set(base, epochs=2), tmp_path, 1, 2, cut)
    assert len(train(training_set(base, epochs=2), tmp_path, 1, 2, quiet)) == 6
    assert train(training_set(base, epochs=2), tmp_path, 1, 2, quiet) == []


def test_a_checkpoint_of_something_else_is_refused(base: str, tmp_path: Path) -> None:
    trainer = CrossEncoderTrainer(RerankerOptions(base, ("en",)), steps=4, threads=1)
    (tmp_path / CHECKPOINT).write_bytes(b"no tensors")
    with pytest.raises(PermanentError, match=r"not a checkpoint of this training.*--fresh"):
        trainer.load_checkpoint(tmp_path)
    trainer.load_checkpoint(tmp_path / "none")
    assert trainer.steps_done == 0


def test_a_base_that_cannot_be_loaded_is_refused(tmp_path: Path) -> None:
    labels = write_cross_encoder(tmp_path / "three", labels=3)
    for name in (str(tmp_path), labels):
        with pytest.raises(PermanentError, match="--base"):
            CrossEncoderTrainer(RerankerOptions(name, ("en",)), steps=4, threads=1)


def test_the_base_is_checked_before_the_queries_are_ranked(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="--base"):
        check_base(RerankerOptions(str(tmp_path), ("en",)))


def test_pairs_are_cut_at_the_limit_of_the_tokenizer(base: str, tmp_path: Path) -> None:
    """RoBERTa has two positions more than it reads tokens."""
    from transformers import AutoTokenizer, RobertaConfig, RobertaForSequenceClassification

    config = RobertaConfig(
        vocab_size=64,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=34,
    )
    config.num_labels = 1
    RobertaForSequenceClassification(config).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(base, model_max_length=32).save_pretrained(tmp_path)
    trainer = CrossEncoderTrainer(RerankerOptions(str(tmp_path), ("en",)), steps=1, threads=1)
    assert trainer.max_length == 32
    assert np.isfinite(trainer.step([("a " * 50, ["b " * 50, "c"])]))


def test_an_encoder_gets_a_head(tmp_path: Path) -> None:
    encoder = write_cross_encoder(tmp_path / "encoder", body="encoder")
    out = tmp_path / "out"
    out.mkdir()
    train(training_set(encoder), out, 1, 100, quiet)
    assert CrossEncoderReranker(str(out)).score("a", ["a", "b"]).shape == (2,)


def test_the_report_compares_on_what_was_held_out(base: str, tmp_path: Path) -> None:
    made = training_set(base, epochs=12)
    train(made, tmp_path, 1, 100, quiet)
    report = evaluate_on_held_out(made, tmp_path, 1.0, quiet)
    feedback, own = report["held_out"][LABELLED], report["held_out"][OWN_TEXT]
    assert feedback["queries"] == 2
    assert feedback["baseline"] == {"hit@1": 0.0, "mrr": 0.25, "ndcg": pytest.approx(0.3155)}
    assert own["queries"] == 1
    assert own["baseline"]["mrr"] == 1.0
    assert isinstance(report["wins"], bool)
    card = make_reranker_card(made, report)
    assert card["held_out"] == report["held_out"]
    reranker = CrossEncoderReranker(str(tmp_path), max_length=512)
    assert reranker.languages == {"en"}


def test_a_folder_with_the_name_of_a_packaged_model_is_a_folder(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path(SMALL_MODEL)
    folder.mkdir()
    train(training_set(base), folder, 1, 100, quiet)
    assert evaluate_on_held_out(training_set(base), folder, 1.0, quiet)["held_out"]


def test_a_model_wins_only_where_the_interval_of_its_gain_is_above_none(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.support.samples.reranking import WordReranker

    made = training_set(base)
    made.texts = {name: name[2:] * 3 + " " + name[2:] for name in made.texts}
    made.texts |= {"x:a": "kiln", "x:b": "loom"}
    monkeypatch.setattr(
        "workers.training.reranker.reranker_training.CrossEncoderReranker",
        lambda *_, **__: WordReranker(),
    )
    made.held_out = [HeldOutQuery(LABELLED, "loom", ("x:b",), ("x:a", "x:b"), (1.1, 1.0))] * 4
    assert evaluate_on_held_out(made, tmp_path, 1.0, quiet)["wins"]
    made.held_out = [HeldOutQuery(LABELLED, "loom", ("x:a",), ("x:a", "x:b"), (1.1, 1.0))] * 4
    assert not evaluate_on_held_out(made, tmp_path, 1.0, quiet)["wins"]
    made.held_out = []
    assert not evaluate_on_held_out(made, tmp_path, 1.0, quiet)["wins"]
