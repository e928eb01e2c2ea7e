"""Mean and deviation of an encoder's cosines between unrelated texts, measured with probes.

Cosines of unrelated texts lie about 0.05 with one encoder and about 0.8 with another, and differ as
much in their spread. Standardised by both, they count alike with any encoder.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np

from search.protocol import Encoder, Vector

PROBES = (
    ("how do I get rust off an old bicycle chain", "bicycle repair: Cleans and oils drivetrains."),
    ("the invoice totals are off by a cent", "invoice rounding: Computes tax per line or per sum."),
    ("write a lullaby in three verses", "song lyrics: Drafts verses and refrains with a metre."),
    ("our login page is slow on Mondays", "web profiling: Finds slow requests in server traces."),
    ("which soil do tomatoes like", "vegetable beds: Plans sowing, soil and watering."),
    ("turn this recording into minutes", "meeting notes: Transcribes speech and lists decisions."),
    ("is this contract clause enforceable", "contract review: Marks risky clauses in agreements."),
    ("draw the orbit of a comet", "orbit plots: Integrates and plots paths of small bodies."),
    ("my dog limps after long walks", "veterinary triage: Asks for symptoms of animals."),
    ("convert these slides to a handout", "slide export: Lays out presentations as pages."),
    ("cluster the customers by what they buy", "segmentation: Groups customers by purchases."),
    ("the docker image is two gigabytes", "container images: Shrinks layers of images."),
    ("plan a week in Lisbon with children", "travel plans: Makes itineraries for families."),
    ("teach me the subjunctive in Spanish", "Spanish grammar: Explains and drills verb forms."),
    ("why does the test pass only on my laptop", "flaky tests: Reproduces and isolates failures."),
    ("knit a hat for a newborn", "knitting patterns: Computes stitches for a size."),
)
"""Prompts, each with the text of a skill that would serve it; texts of different pairs are
unrelated."""


class CosineScale(NamedTuple):
    """Mean and standard deviation of the cosines of unrelated texts."""

    mean: float
    spread: float


DEFAULT_SCALE = CosineScale(0.072, 0.081)
"""Scale of the default encoder, so that a command with a single query need not encode the
probes."""


class TaskScale(NamedTuple):
    """Cosines between unrelated tasks. centre: their mean vector, (dimension,), or None for 0."""

    cosines: CosineScale
    centre: Vector | None


DEFAULT_TASK_SCALE = TaskScale(CosineScale(0.111, 0.083), None)
"""Task scale of the default encoder, whose vectors of unrelated tasks point in all directions."""

_Scale = TypeVar("_Scale")
_DEFAULT_MODEL = "multilingual-e5-small-skills:"
_scales: dict[str, CosineScale] = {}
_task_scales: dict[str, TaskScale] = {}
_lock = threading.Lock()


def is_default_model(model: str) -> bool:
    """Return whether this is the name of the default encoder, to which DEFAULT_SCALE applies."""
    return model.startswith(_DEFAULT_MODEL)


def measure_cosine_scale(encoder: Encoder) -> CosineScale:
    """Return the scale of an encoder; measured once per model and process, in under a second."""
    if is_default_model(encoder.model):
        return DEFAULT_SCALE
    return _measure_once(encoder, _measure_scale, _scales)


def measure_task_scale(encoder: Encoder) -> TaskScale:
    """Return the scale between tasks; measured once per model and process, in under a second."""
    if is_default_model(encoder.model):
        return DEFAULT_TASK_SCALE
    return _measure_once(encoder, _measure_task_scale, _task_scales)


def _measure_once(
    encoder: Encoder, measure: Callable[[Encoder], _Scale], measured: dict[str, _Scale]
) -> _Scale:
    with _lock:
        if encoder.model not in measured:
            measured[encoder.model] = measure(encoder)
        return measured[encoder.model]


def _measure_scale(encoder: Encoder) -> CosineScale:
    prompts = encoder.encode_queries([prompt for prompt, _ in PROBES])
    texts = encoder.encode_texts([text for _, text in PROBES])
    return _describe_unrelated(prompts @ texts.T)


def _measure_task_scale(encoder: Encoder) -> TaskScale:
    prompts = encoder.encode_queries([prompt for prompt, _ in PROBES])
    return TaskScale(_describe_unrelated(prompts @ prompts.T), prompts.mean(axis=0))


def _describe_unrelated(cosines: Vector) -> CosineScale:
    unrelated = cosines[~np.eye(len(PROBES), dtype=np.bool_)]
    return CosineScale(float(unrelated.mean()), max(float(unrelated.std()), 1e-6))
