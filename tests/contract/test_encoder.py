"""What encoders do, with the packaged model."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from config.errors import PermanentError
from search.models.encoder import DEFAULT_MODEL, SentenceTransformerEncoder, encoder_identity
from search.protocol import Encoder

TEXTS = [
    "Fire the kiln slowly overnight.",
    "Thread the heddles of the loom.",
    "A tide table gives high water for a port. " * 60,
    "",
    "读取日志",
]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return SentenceTransformerEncoder()


def test_vectors_have_unit_length_in_the_order_of_the_texts(encoder: Encoder) -> None:
    vectors = encoder.encode(TEXTS)
    assert vectors.shape == (len(TEXTS), encoder.dimension)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1.0, abs=1e-5)
    alone = np.concatenate([encoder.encode([text]) for text in TEXTS])
    assert (vectors * alone).sum(axis=1).min() > 0.999


def test_meaning_is_near(encoder: Encoder) -> None:
    kiln, loom, pottery = encoder.encode([*TEXTS[:2], "baking pottery in an oven"])
    assert pottery @ kiln > pottery @ loom


def test_no_texts_give_no_vectors(encoder: Encoder) -> None:
    assert encoder.encode([]).shape == (0, encoder.dimension)


def test_threads_encode_at_once(encoder: Encoder) -> None:
    expected = encoder.encode(TEXTS)
    results: list[np.ndarray] = []
    threads = [
        threading.Thread(target=lambda: results.append(encoder.encode(TEXTS * 4))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3
    for vectors in results:
        assert (vectors * np.tile(expected, (4, 1))).sum(axis=1).min() > 0.999


def test_identity_is_known_without_loading(encoder: Encoder) -> None:
    assert encoder_identity(DEFAULT_MODEL) == (encoder.model, encoder.dimension)
    assert encoder.languages == {"en"}


def test_an_unknown_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="cannot be loaded"):
        SentenceTransformerEncoder(str(tmp_path / "none"))


def test_importing_is_light() -> None:
    code = (
        "import search.models.encoder, search.models.reranker, search.models.load_models, sys; "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
