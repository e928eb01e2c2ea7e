"""Cross-encoders: relevance of texts to a query, read together."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from config.errors import PermanentError
from search.encoder import silence_libraries
from search.protocol import Vector


class CrossEncoderReranker:
    """A `Reranker` over a sentence-transformers cross-encoder, by name or folder.

    `max_length` bounds the tokens of query and text together. Raises PermanentError when the
    model cannot be loaded or gives more than one score a pair.
    """

    def __init__(
        self,
        model: str,
        *,
        batch_size: int = 8,
        max_length: int = 512,
        device: str = "cpu",
    ) -> None:
        silence_libraries()
        self._model = model
        self._batch_size = batch_size
        self._lock = threading.Lock()
        self._network = _load(model, max_length, device)

    @property
    def model(self) -> str:
        """Name and version."""
        return f"{self._model}:1"

    def score(self, query: str, texts: Sequence[str]) -> Vector:
        """Relevance of each text, float32 (len(texts),); higher is better."""
        if not texts:
            return np.empty(0, dtype=np.float32)
        with self._lock:
            scores = self._network.predict(
                [(query, text) for text in texts],
                batch_size=self._batch_size,
                show_progress_bar=False,
                convert_to_numpy=True,
            )
        return np.asarray(scores, dtype=np.float32).reshape(len(texts))


def _load(model: str, max_length: int, device: str) -> Any:
    from sentence_transformers import CrossEncoder

    try:
        network = CrossEncoder(model, device=device, max_length=max_length)
    except (OSError, ValueError, RuntimeError) as error:
        raise PermanentError(
            f"the reranker {model!r} cannot be loaded ({error}); name an installed "
            "cross-encoder, or switch reranking off"
        ) from error
    if int(network.config.num_labels) != 1:
        raise PermanentError(f"the reranker {model!r} gives several scores a pair, not one")
    return network
