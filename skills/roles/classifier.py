"""Classifies passages: a linear classifier, blended with the rules.

Multinomial logistic regression over the features of `skills.roles.features`. `skillbus train
roles` trains its weights; `weights.json` describes those that ship.
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
"""The order of roles in every array here."""

LIST_SHARE = 0.5
"""Share of the whole list in the probabilities of an item."""

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
"""Errors of numpy for a file that is truncated, damaged or of another type."""

Probabilities = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RoleClassifier:
    """Weights (FEATURE_COUNT, 6), an intercept per role, and the share of the rules."""

    weights: npt.NDArray[np.float32]
    intercepts: npt.NDArray[np.float32]
    rules_share: float

    def predict_probabilities(self, contexts: Sequence[PassageContext]) -> Probabilities:
        """Probability of each role per passage, (passages, 6), from the features alone."""
        if not contexts:
            return np.zeros((0, len(ROLES)))
        features = extract_features(contexts)
        parts = self.weights[features.places] * features.values[:, None]
        scores = np.add.reduceat(parts, features.starts[:-1], axis=0) + self.intercepts
        scores -= scores.max(axis=1, keepdims=True)
        powers = np.exp(scores, dtype=np.float64)
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))

    def predict(self, contexts: Sequence[PassageContext]) -> list[RolePrediction]:
        """The role of each passage and its probability, from features, rules and neighbours."""
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
    """The role of each passage and its probability.

    `lines` are the lines of the whole file; `sections` and `passages` are its fragments. The
    default classifier is the one that ships with the package.
    """
    contexts = build_passage_contexts(lines, sections, passages)
    return (classifier or load_default_classifier()).predict(contexts)


def blend_probabilities(
    contexts: Sequence[PassageContext],
    predictions: Sequence[RolePrediction],
    by_features: Probabilities,
    share: float,
) -> Probabilities:
    """Probabilities (passages, 6): `share` of the rules' predictions, the rest by features.

    List items are then averaged with their list by LIST_SHARE, weighted by lines; the chunks of a
    code block get their mean.
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
    """The likeliest role of each row, the first in case of a tie, and its probability."""
    best, probabilities = mixed.argmax(axis=1), mixed.max(axis=1)
    roles = [ROLES[role] for role in best.tolist()]
    return list(zip(roles, probabilities.tolist(), strict=True))


def dump_weights(classifier: RoleClassifier) -> bytes:
    """The content of a weights file: non-zero weights in half precision."""
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
    """A classifier from a weights file; raises PermanentError when it is not one of this format."""
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
    """A classifier that uses the rules only; needs no weights file."""
    shape = (FEATURE_COUNT, len(ROLES))
    return RoleClassifier(np.zeros(shape, np.float32), np.zeros(len(ROLES), np.float32), 1.0)


@lru_cache(maxsize=1)
def load_default_classifier() -> RoleClassifier:
    """The classifier that ships with this package, read once."""
    return parse_weights(files("skills.roles").joinpath("weights.npz").read_bytes())
