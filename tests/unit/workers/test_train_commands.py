"""Commands of `skillbus train`: options, outputs, and what is kept when a training is resumed."""

from __future__ import annotations

from pathlib import Path

from config.settings import Settings
from workers.cli.training.model_training import identify_feedback
from workers.cli.training.reranker import _choose, _load_or_build, reranker
from workers.training.reranker_training import TRAINING_SET_FILE
from workers.training.training_set import TrainingSet, dump


def test_a_training_on_outcomes_is_resumed_whatever_was_reported_since(tmp_path: Path) -> None:
    settings = Settings().model_copy(update={"home": tmp_path / "home"})
    options = reranker.make_context("reranker", ["--out", str(tmp_path), "--outcomes"]).params
    del options["lists_a_step"]
    begun = TrainingSet(_choose(settings, options, identify_feedback(None, True)))
    (tmp_path / TRAINING_SET_FILE).write_bytes(dump(begun))
    assert _load_or_build(settings, options) == begun
