"""Cross-encoders: relevance of texts to a query, read together.

torch is imported when a reranker is made, never with this module.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from config.errors import PermanentError
from search.models.encoder import (
    DEFAULT_MODEL,
    has_bfloat16,
    is_english_only,
    model_load_errors,
    silence_libraries,
)
from search.protocol import Vector

TRAINING_FILE = "skillbus.json"
"""Beside the weights of a reranker that skillbus trained: from what, and what it reached."""

_HEADS = ("ForSequenceClassification", "ForCausalLM")
_CHARACTERS_A_TOKEN = 12


class CrossEncoderReranker:
    """A `Reranker` over a sentence-transformers cross-encoder, by name or folder.

    `max_length` bounds the tokens of query and text together, as does the model itself. A model
    uses `threads` torch threads. Weights are bfloat16 where the processor multiplies it natively.
    Raises PermanentError when the model cannot be loaded, is no cross-encoder or gives more than
    one score a pair.
    """

    def __init__(
        self, model: str, *, max_length: int = 512, threads: int = 1, device: str = "cpu"
    ) -> None:
        # The tokenizer's own threads would take processors that our threads share out.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        import torch

        torch.set_num_threads(threads)
        silence_libraries()
        self._lock = threading.Lock()
        self._raw = torch.nn.Identity()
        self._network = _load(model, max_length, device)
        low_precision = has_bfloat16(torch, device)
        if low_precision:
            self._network = self._network.bfloat16()
        self._network.eval()
        self._model = f"{model}:{'bf16' if low_precision else 'f32'}:1"
        self._languages = _languages(model)
        # A tokenizer reads a text to its end however little of it counts.
        self._characters = _CHARACTERS_A_TOKEN * int(self._network.max_seq_length)

    @property
    def model(self) -> str:
        """Name, precision and version."""
        return self._model

    @property
    def languages(self) -> frozenset[str]:
        """Languages the model was trained on; others are assumed for models not known here."""
        return self._languages

    def score(self, query: str, texts: Sequence[str]) -> Vector:
        """Relevance of each text, float32 (len(texts),), as the model's logits; in one batch."""
        if not texts:
            return np.empty(0, dtype=np.float32)
        limit = self._characters
        with self._lock:  # fast tokenizers refuse to be shared while truncating
            scores = self._network.predict(
                [(query[:limit], text[:limit]) for text in texts],
                batch_size=len(texts),
                activation_fn=self._raw,  # a sigmoid would make good candidates all alike
                show_progress_bar=False,
                convert_to_numpy=True,
            )
        return np.asarray(scores, dtype=np.float32).reshape(len(texts))


def _load(model: str, max_length: int, device: str) -> Any:
    from sentence_transformers import CrossEncoder
    from transformers import AutoConfig

    if model == DEFAULT_MODEL:
        raise PermanentError(
            f"{model!r} is the encoder and no cross-encoder; name a model that scores pairs, or "
            "make one with `skillbus train reranker`"
        )
    try:
        heads = AutoConfig.from_pretrained(model).architectures or []
        if heads and not any(head.endswith(_HEADS) for head in heads):
            raise PermanentError(
                f"{model!r} is no cross-encoder (it is a {heads[0]}); name a model that scores "
                "pairs, or make one with `skillbus train reranker`"
            )
        network = CrossEncoder(model, device=device)
    except model_load_errors() as error:
        raise PermanentError(
            f"the reranker {model!r} cannot be loaded ({error}); name an installed "
            "cross-encoder, or switch reranking off (reranker.model)"
        ) from error
    if int(network.num_labels) != 1:
        raise PermanentError(f"the reranker {model!r} gives several scores a pair, not one")
    own = (network.max_seq_length, getattr(network.config, "max_position_embeddings", None))
    network.max_seq_length = min([max_length, *(int(limit) for limit in own if limit)])
    return network


def _languages(model: str) -> frozenset[str]:
    """What the training file says, else what the name tells."""
    record = Path(model) / TRAINING_FILE
    if record.is_file():
        try:
            return frozenset(json.loads(record.read_text(encoding="utf-8"))["languages"])
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise PermanentError(f"{record} cannot be read: {error}; train again") from error
    return frozenset({"en"} if is_english_only(model) else {"en", "zh"})
