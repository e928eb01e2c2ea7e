"""Factors of the parts of a score, learned from labelled prompts and read from a small file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from config.errors import MisconfiguredError

FORMAT = 1
"""Incremented when files of earlier versions can no longer be read."""

_MAX_FACTOR = 1e6

PARTS = ("bm25f", "description", "examples", "exclusions", "names", "bigrams", "hub", "dense")
"""The parts of a score that a factor can weigh, as `ScoredCandidates.components` names them."""


def dump_factors(factors: Mapping[str, float]) -> bytes:
    """Return the content of a file of factors."""
    rounded = {name: round(float(factors[name]), 4) for name in PARTS}
    return (json.dumps({"format": FORMAT, "factors": rounded}, indent=2) + "\n").encode()


def read_factors(content: bytes) -> dict[str, float]:
    """Parse the content of a file; raises ValueError, with the reason, if it is not valid."""
    found = json.loads(content)
    if not isinstance(found, dict) or not isinstance(found.get("factors"), dict):
        raise ValueError("it holds no `factors`")
    if found.get("format") != FORMAT:
        raise ValueError(f"its format is {found.get('format')!r}, not {FORMAT}")
    factors = {}
    for name in PARTS:
        factor = found["factors"].get(name)
        if not isinstance(factor, (int, float)) or not 0.0 <= factor < _MAX_FACTOR:
            raise ValueError(f"the factor of {name} is {factor!r}, not a number of at least 0")
        factors[name] = float(factor)
    return factors


@lru_cache(maxsize=4)
def load_factors(path: str) -> Mapping[str, float] | None:
    """Return the factors in a file, read once per process; None for an empty path.

    Raises MisconfiguredError if the file cannot be read.
    """
    if not path:
        return None
    try:
        return read_factors(Path(path).expanduser().read_bytes())
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: `~` of an unknown user
        reason = error.strerror if isinstance(error, OSError) else error
        raise MisconfiguredError(
            f"the file {path} of `ranker.weights` cannot be read: {reason}; make it by "
            "`skillbus train ranker`, or leave the setting empty"
        ) from error
