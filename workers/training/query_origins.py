"""Origins of the queries that models are trained and evaluated on, for reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

LABELLED = "labelled prompts"
"""Prompts of `--feedback`."""

MODEL_PROMPTS = "prompts of the language model"
TRIGGERS = "trigger phrases"
SECTIONS = "sections"
OWN_TEXT = "own text"


def has_won(held_out: Mapping[str, Mapping[str, Any]], deciding: Sequence[str]) -> bool:
    """Return whether the 95% interval of the gain in MRR lies above 0 for the first of the deciding
    origins that a report by origin has."""
    origin = next((one for one in deciding if one in held_out), None)
    return origin is not None and held_out[origin]["mrr_gain"][0] > 0
