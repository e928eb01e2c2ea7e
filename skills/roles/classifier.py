"""Classifies passages: a linear classifier, blended with the rules.

Multinomial logistic regression over the features of `skills.roles.features`. `skillbus train roles`
trains its weights; `weights.json` describes the weights of the package.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

import numpy as np
import numpy.typing as npt

from config.errors import PermanentError
from skills.record import Passage, Role, Section
from skills.roles.features import FEATURE_COUNT, extract_features
from skills.roles.passage_context import PassageContext, build_passage_contexts, find_lists
from skills.roles.rules import RolePrediction, classify_by_rules

FORMAT = 1
"""Increased whenever features or their buckets change; other formats are rejected."""

ROLES = tuple(Role)
"""Order of the roles in all arrays of this module."""

LIST_SHARE = 0.5
"""Weight of the mean of a list in the probabilities of each item."""

_UNREADABLE = (
    ValueError,
    TypeError,
    OSError,
    KeyError,
    IndexError,
    EOFError,
    zipfile.BadZipFile,
    zlib.error,
)
"""Errors that numpy raises for a file that is truncated, damaged or of another type."""

Probabilities = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RoleClassifier:
    """Linear classifier of roles: weights (FEATURE_COUNT, 6), intercepts, share of the rules."""

    weights: npt.NDArray[np.float32]
    intercepts: npt.NDArray[np.float32]
    rules_share: float

    def predict_probabilities(self, contexts: Sequence[PassageContext]) -> Probabilities:
        """Return the probability of each role per passage, (passages, 6), from features only."""
        if not contexts:
            return np.zeros((0, len(ROLES)))
        features = extract_features(contexts)
        parts = self.weights[features.places] * features.values[:, None]
        scores = np.add.reduceat(parts, features.starts[:-1], axis=0) + self.intercepts
        scores -= scores.max(axis=1, keepdims=True)
        powers = np.exp(scores, dtype=np.float64)
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))

    def predict(self, contexts: Sequence[PassageContext]) -> list[RolePrediction]:
        """Return the role of each passage and its probability, by features, rules and context."""
        return pick_likeliest_roles(
            blend_probabilities(
                contexts,
                classify_by_rules(contexts),
                self.predict_probabilities(contexts),
                self.rules_share,
            )
        )


def classify_passages(
    lines: Sequence[str],
    sections: Sequence[Section],
    passages: Sequence[Passage],
    classifier: RoleClassifier | None = None,
) -> list[RolePrediction]:
    """Return the role of each passage and its probability.

    `lines` are the lines of the whole file; `sections` and `passages` are its fragments. By default
    the classifier of the package is used.
    """
    contexts = build_passage_contexts(lines, sections, passages)
    return (classifier or load_default_classifier()).predict(contexts)


def blend_probabilities(
    contexts: Sequence[PassageContext],
    predictions: Sequence[RolePrediction],
    by_features: Probabilities,
    share: float,
) -> Probabilities:
    """Blend probabilities (passages, 6): `share` by the rules' predictions, the rest by features.

    Then each list item is averaged with its list by LIST_SHARE, weighted by lines, and all chunks
    of a code block get the mean of their probabilities.
    """
    mixed = (1 - share) * by_features
    mixed[np.arange(len(predictions)), [ROLES.index(role) for role, _ in predictions]] += share
    for start, end in find_lists(contexts):
        lines = np.array([len(context.lines) for context in contexts[start:end]], dtype=np.float64)
        together = lines @ mixed[start:end] / max(1.0, lines.sum())
        mixed[start:end] += LIST_SHARE * (together - mixed[start:end])
    start = 0
    for index in range(1, len(contexts) + 1):
        if index == len(contexts) or not contexts[index].continues_code_of(contexts[index - 1]):
            if index - start > 1:
                mixed[start:index] = mixed[start:index].mean(axis=0)
            start = index
    return mixed


def pick_likeliest_roles(mixed: Probabilities) -> list[RolePrediction]:
    """Return the likeliest role of each row, the first in case of a tie, and its probability."""
    best, probabilities = mixed.argmax(axis=1), mixed.max(axis=1)
    roles = [ROLES[role] for role in best.tolist()]
    return list(zip(roles, probabilities.tolist(), strict=True))


def dump_weights(classifier: RoleClassifier) -> bytes:
    """Return the content of a weights file: non-zero weights in half precision."""
    used = np.flatnonzero(np.abs(classifier.weights).max(axis=1) > 0)
    out = io.BytesIO()
    np.savez_compressed(
        out,
        format=np.int64(FORMAT),
        places=used.astype(np.uint16),
        weights=classifier.weights[used].astype(np.float16),
        intercepts=classifier.intercepts.astype(np.float32),
        rules_share=np.float64(classifier.rules_share),
    )
    return out.getvalue()


def parse_weights(content: bytes) -> RoleClassifier:
    """Parse a weights file; raises PermanentError if it is damaged or of another format."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            if int(arrays["format"]) != FORMAT:
                raise PermanentError(
                    f"weights of roles have format {int(arrays['format'])}, this version reads "
                    f"{FORMAT}; train them again with `skillbus train roles`"
                )
            weights = np.zeros((FEATURE_COUNT, len(ROLES)), np.float32)
            weights[arrays["places"]] = arrays["weights"]
            intercepts = arrays["intercepts"].astype(np.float32).reshape(len(ROLES))
            return RoleClassifier(weights, intercepts, float(arrays["rules_share"]))
    except _UNREADABLE as error:
        raise PermanentError(
            f"weights of roles cannot be read: {error}; train them with `skillbus train roles`"
        ) from error


def rules_only_classifier() -> RoleClassifier:
    """Return a classifier that uses only the rules; it needs no weights file."""
    shape = (FEATURE_COUNT, len(ROLES))
    return RoleClassifier(np.zeros(shape, np.float32), np.zeros(len(ROLES), np.float32), 1.0)


@lru_cache(maxsize=1)
def load_default_classifier() -> RoleClassifier:
    """Return the classifier of this package; its file is read once."""
    return parse_weights(files("skills.roles").joinpath("weights.npz").read_bytes())
