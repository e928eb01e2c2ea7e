"""Encoder over sentence-transformers models: texts to unit vectors.

torch is imported when an encoder is created, not with this module, as it takes seconds.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from config.errors import PermanentError
from config.settings import EncoderSettings
from search.models.batch_encoder import BatchEncoder, Ids, Mask
from search.models.identity import (
    DEFAULT_MODEL,
    PLAIN_MODEL,
    SMALL_MODEL,
    adapter_files,
    base_model,
    model_path,
    processor_has_bfloat16,
    resolve_prompts,
)
from search.models.installed import check_installed
from search.models.low_rank import apply_adapter
from search.models.packed_weights import packed_weights_path
from search.process_memory import limit_malloc
from search.protocol import Vector

_TOKENIZER_BATCH = 32


class SentenceTransformerEncoder(BatchEncoder):
    """An `Encoder` over a model that torch runs; several threads may encode at once.

    settings: names the model. Prompts that it leaves out are those of its training by skillbus, of
    the model's configuration (`prompts` "query", and "document", "passage" or "corpus", or else
    that of `default_prompt_name`), or of its family. A call uses one thread of torch: with two
    calling threads, that is faster than two.

    Weights are bfloat16 where the processor multiplies it natively. Raises PermanentError if the
    model cannot be loaded, or torch is not installed.
    """

    def __init__(self, settings: EncoderSettings) -> None:
        check_installed("torch", "sentence_transformers", purpose=f"the encoder {settings.model!r}")
        limit_malloc()
        # Threads of the tokenizer would compete with the encoding threads for processors.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        import torch

        torch.set_num_threads(1)
        self._torch = torch
        self._tokenizer_lock = threading.Lock()
        self._network = load_network(settings.model, "cpu")
        low_precision = processor_has_bfloat16()
        if low_precision:
            self._network = self._network.bfloat16()
        self._network.eval()
        super().__init__(
            settings,
            prompts=resolve_prompts(
                settings, self._network.prompts, self._network.default_prompt_name
            ),
            limit=int(self._network.max_seq_length or 512),
            dimension=int(self._network.get_embedding_dimension()),
            padding=int(self._network.tokenizer.pad_token_id or 0),
            low_precision=low_precision,
        )

    @override
    def _tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = []
        for first in range(0, len(texts), _TOKENIZER_BATCH):
            part = list(texts[first : first + _TOKENIZER_BATCH])
            with self._tokenizer_lock:  # fast tokenizers are not thread-safe with truncation
                ids += self._network.tokenizer(part, truncation=True, max_length=self._limit)[
                    "input_ids"
                ]
        return ids

    @override
    def _run(self, ids: Ids, mask: Mask) -> Vector:
        tensor = self._torch.from_numpy
        features = {"input_ids": tensor(ids), "attention_mask": tensor(mask)}
        with self._torch.inference_mode():
            out = self._network(features)["sentence_embedding"]
        return np.asarray(out.float().numpy())


def silence_libraries() -> None:
    """Disable progress bars and load reports of the model libraries."""
    from transformers.utils import logging as transformers_logging

    quiet: Any = transformers_logging  # its functions have no annotations
    quiet.disable_progress_bar()
    quiet.set_verbosity_error()
    logging.getLogger("sentence_transformers").setLevel(logging.WARNING)


def load_network(model: str, device: str) -> Any:
    """Load the packaged or a sentence-transformers model, with its adapters.

    Raises PermanentError if that fails.
    """
    network = _load_base(base_model(model), device)
    for path in adapter_files(model):
        apply_adapter(transformer_of(network), path)
    return network


def _load_base(model: str, device: str) -> Any:
    if model in (DEFAULT_MODEL, PLAIN_MODEL):
        from search.models.packaged_e5 import load_packaged_e5

        return load_packaged_e5(packed_weights_path()).to(device)
    # The import takes seconds, and the packaged models do not need it.
    from sentence_transformers import SentenceTransformer

    silence_libraries()
    try:
        local = model == SMALL_MODEL
        network = SentenceTransformer(model_path(model), device=device, local_files_only=local)
    except model_load_errors() as error:
        raise PermanentError(
            f"the encoder {model!r} cannot be loaded ({error}); name an installed model "
            f"or {DEFAULT_MODEL!r}"
        ) from error
    if not callable(network.tokenizer):
        raise PermanentError(
            f"the encoder {model!r} has static embeddings of words, which are not supported; name "
            f"a transformer or {DEFAULT_MODEL!r}"
        )
    return network


def transformer_of(network: Any) -> Any:
    """Return the transformer in a network of `load_network`, without its pooling."""
    return network.network if hasattr(network, "network") else network[0].auto_model


def model_load_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of model libraries for missing, damaged or unsuitable models."""
    from safetensors import SafetensorError

    damaged = (ValueError, TypeError, KeyError, AttributeError)
    return (OSError, *damaged, ImportError, RuntimeError, SafetensorError)
