"""Reranker over sentence-transformers cross-encoders: relevance of texts to a query.

torch is imported when a reranker is created, not with this module, as it takes seconds.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from config.errors import PermanentError
from search.models.encoder import model_load_errors, silence_libraries
from search.models.identity import (
    DEFAULT_MODEL,
    PLAIN_MODEL,
    SMALL_MODEL,
    processor_has_bfloat16,
    trained_languages,
)
from search.models.installed import check_installed
from search.models.model_families import with_mixtures
from search.protocol import Reranker, Vector

_HEADS = ("ForSequenceClassification", "ForCausalLM")
_MAX_CHARACTERS_PER_TOKEN = 12
"""Texts are cut to this many characters for each token of the model before they are tokenized."""


class CrossEncoderReranker(Reranker):
    """A `Reranker` over a sentence-transformers cross-encoder.

    model: name or folder. max_length: maximum tokens of query and text together, up to the
    model's own limit.

    Weights are bfloat16 where the processor multiplies it natively. Raises PermanentError if the
    model cannot be loaded, is no cross-encoder or gives more than one score per pair.
    """

    def __init__(self, model: str, *, max_length: int = 512) -> None:
        check_installed("torch", "sentence_transformers", purpose=f"the reranker {model!r}")
        # Threads of the tokenizer would compete with other threads for processors.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        import torch

        torch.set_num_threads(1)
        silence_libraries()
        self._lock = threading.Lock()
        self._raw = torch.nn.Identity()
        self._network = _load(model, max_length)
        low_precision = processor_has_bfloat16()
        if low_precision:
            self._network = self._network.bfloat16()
        self._network.eval()
        self._model = f"{model}:{'bf16' if low_precision else 'f32'}:1"
        self._languages = with_mixtures(trained_languages(model))
        # The tokenizer processes a whole text, even if only its start is used: cut it before.
        self._characters = _MAX_CHARACTERS_PER_TOKEN * int(self._network.max_seq_length)

    @property
    @override
    def model(self) -> str:
        return self._model

    @property
    @override
    def languages(self) -> frozenset[str]:
        """Languages of the training file, else those that the name implies."""
        return self._languages

    @override
    def score(self, query: str, texts: Sequence[str]) -> Vector:
        """Return the logit of each text, float32 (len(texts),), in one batch."""
        if not texts:
            return np.empty(0, dtype=np.float32)
        limit = self._characters
        with self._lock:  # fast tokenizers are not thread-safe with truncation
            scores = self._network.predict(
                [(query[:limit], text[:limit]) for text in texts],
                batch_size=len(texts),
                activation_fn=self._raw,  # a sigmoid would make all good candidates score about 1
                show_progress_bar=False,
                convert_to_numpy=True,
            )
        return np.asarray(scores, dtype=np.float32).reshape(len(texts))


def _load(model: str, max_length: int) -> Any:
    from sentence_transformers import CrossEncoder
    from transformers import AutoConfig

    if model in (DEFAULT_MODEL, PLAIN_MODEL, SMALL_MODEL):
        raise PermanentError(
            f"{model!r} is an encoder, not a cross-encoder; name a model that scores pairs, or "
            "make one with `skillbus train reranker`"
        )
    try:
        heads = AutoConfig.from_pretrained(model).architectures or []
        # Without a head of its own, a model would get one with random weights.
        if not any(head.endswith(_HEADS) for head in heads):
            kind = heads[0] if heads else "no architecture"
            raise PermanentError(
                f"{model!r} is not a cross-encoder (its configuration names {kind}); name a model "
                "that scores pairs, or make one with `skillbus train reranker`"
            )
        network = CrossEncoder(model, device="cpu")
    except model_load_errors() as error:
        raise PermanentError(
            f"the reranker {model!r} cannot be loaded ({error}); name an installed "
            "cross-encoder, or switch reranking off (reranker.model)"
        ) from error
    if int(network.num_labels) != 1:
        raise PermanentError(f"the reranker {model!r} gives several scores per pair, not one")
    limits = (network.max_seq_length, getattr(network.config, "max_position_embeddings", None))
    network.max_seq_length = min([max_length, *(int(limit) for limit in limits if limit)])
    return network
