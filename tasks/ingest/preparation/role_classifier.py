"""Loader of the role classifier that the settings name."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from config.errors import UsageError
from skills.roles import RoleClassifier
from skills.roles.classifier import load_default_classifier, parse_weights


@lru_cache(maxsize=4)
def load_role_classifier(weights: str) -> RoleClassifier:
    """Return the classifier of a weights file, read once; the built-in one if `weights` is empty.

    Raises UsageError when the file cannot be read, PermanentError when it holds no weights.
    """
    if not weights:
        return load_default_classifier()
    try:
        content = Path(weights).read_bytes()
    except OSError as error:
        raise UsageError(f"roles.weights: {weights} cannot be read: {error.strerror}") from error
    return parse_weights(content)
