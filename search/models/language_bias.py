"""Language bias of an encoder: vectors of texts in one language lie near each other.

A Spanish task is near the few Spanish skills of a library, whatever they are about. The mean
difference between vectors of the same prompts in Spanish and in English is the direction of that
language (Yang et al., "A Simple and Effective Method To Eliminate the Self Language Bias in
Multilingual Representations", EMNLP 2021, who remove several directions from all vectors). Without
it, the task's vector compares skills by what they are about.
"""

from __future__ import annotations

import json
import threading
from functools import cache
from importlib.resources import files

import numpy as np

from search.protocol import Encoder, Vector
from search.scoring.cosine_scale import PROBES
from search.text.task_language import detect_task_language

_directions: dict[tuple[str, str], Vector] = {}
_lock = threading.Lock()


@cache
def load_translations() -> dict[str, list[str]]:
    """Return the prompts of PROBES in other languages, by language; read once."""
    text = files("search.models").joinpath("probe_translations.json").read_text("utf-8")
    translations: dict[str, list[str]] = json.loads(text)
    return translations


def remove_language(vector: Vector, text: str, encoder: Encoder) -> Vector:
    """Return the unit vector of a task without the direction of its language.

    vector: of the task `text`, (d,). Tasks in English, in Chinese and in languages without
    translated probes keep theirs. The direction of a language is measured once per model and
    process, in a quarter of a second.
    """
    language = detect_task_language(text)
    if language not in load_translations():
        return vector
    direction = _measure_direction(encoder, language)
    rest = vector - (vector @ direction) * direction
    return np.asarray(rest / max(float(np.linalg.norm(rest)), 1e-9), dtype=np.float32)


def _measure_direction(encoder: Encoder, language: str) -> Vector:
    """Return the unit vector from English to the language, (d,); 0 if the encoder has none."""
    with _lock:
        known = _directions.get((encoder.model, language))
        if known is None:
            english = encoder.encode_queries([prompt for prompt, _ in PROBES])
            translated = encoder.encode_queries(load_translations()[language])
            step = (translated - english).mean(axis=0)
            known = _directions[encoder.model, language] = np.asarray(
                step / max(float(np.linalg.norm(step)), 1e-9), dtype=np.float32
            )
    return known
