"""Factors of the parts of a score, learnt from labelled prompts and read from a small file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from config.errors import MisconfiguredError

FORMAT = 1
"""Incremented when files of earlier versions can no longer be read."""

PARTS = ("bm25f", "description", "examples", "exclusions", "names", "bigrams", "hub", "dense")
"""The parts of a score that a factor can weigh, as `ScoredCandidates.components` names them."""


def dump_factors(factors: Mapping[str, float]) -> bytes:
    """Return the content of a file of factors."""
    rounded = {name: round(float(factors[name]), 4) for name in PARTS}
    return (json.dumps({"format": FORMAT, "factors": rounded}, indent=2) + "\n").encode()


def read_factors(content: bytes) -> dict[str, float]:
    """Parse the content of a file; raises MisconfiguredError if it is not valid."""
    try:
        found = json.loads(content)
        factors = {name: float(found["factors"][name]) for name in PARTS}
        valid = found["format"] == FORMAT and all(0.0 <= x < 1e6 for x in factors.values())
    except (ValueError, KeyError, TypeError) as error:
        raise MisconfiguredError(f"the factors of the ranker cannot be read: {error}") from error
    if not valid:
        raise MisconfiguredError("the factors of the ranker are of another version, or negative")
    return factors


@lru_cache(maxsize=4)
def load_factors(path: str) -> Mapping[str, float] | None:
    """Return the factors in a file, read once per process; None for an empty path.

    Raises MisconfiguredError if the file cannot be read.
    """
    if not path:
        return None
    try:
        content = Path(path).expanduser().read_bytes()
    except OSError as error:
        raise MisconfiguredError(
            f"the file {path} of `ranker.weights` cannot be read: {error.strerror}"
        ) from error
    return read_factors(content)
