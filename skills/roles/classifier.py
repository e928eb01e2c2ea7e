"""A linear classifier of passages, and its judgement put together with that of the rules.

Multinomial logistic regression over the features of `features`; its weights are made by
`skillbus train roles` and described by `weights.json`.
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
"""Raised whenever features or their places change: weights of another format are refused."""

ROLES = tuple(Role)
"""The order of roles in every array here."""

LIST_SHARE = 0.5
"""How much of an item's judgement is that of its whole list."""

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
"""What numpy raises for a file that is cut off, damaged or of another make."""

Probabilities = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RoleClassifier:
    """Weights (WIDTH, 6), an intercept a role, and the share that the rules have in a judgement."""

    weights: npt.NDArray[np.float32]
    intercepts: npt.NDArray[np.float32]
    rules_share: float

    def predict_probabilities(self, blocks: Sequence[PassageContext]) -> Probabilities:
        """Of each role for each block, (blocks, 6), by the features alone."""
        if not blocks:
            return np.zeros((0, len(ROLES)))
        features = extract_features(blocks)
        parts = self.weights[features.places] * features.values[:, None]
        scores = np.add.reduceat(parts, features.starts[:-1], axis=0) + self.intercepts
        scores -= scores.max(axis=1, keepdims=True)
        powers = np.exp(scores, dtype=np.float64)
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))

    def predict(self, blocks: Sequence[PassageContext]) -> list[RolePrediction]:
        """The role of each block and its probability, rules and neighbours heard."""
        return pick_likeliest_roles(
            blend_probabilities(
                blocks,
                classify_by_rules(blocks),
                self.predict_probabilities(blocks),
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
    blocks: Sequence[PassageContext],
    predictions: Sequence[RolePrediction],
    by_features: Probabilities,
    share: float,
) -> Probabilities:
    """`share` of the rules' verdicts and the rest by features, (blocks, 6).

    Items then lean on their list by LIST_SHARE, by lines, and the chunks of one code block agree.
    """
    mixed = (1 - share) * by_features
    for index, (role, _) in enumerate(predictions):
        mixed[index, ROLES.index(role)] += share
    for start, end in find_lists(blocks):
        lines = np.array([len(block.lines) for block in blocks[start:end]], dtype=np.float64)
        together = lines @ mixed[start:end] / max(1.0, lines.sum())
        mixed[start:end] += LIST_SHARE * (together - mixed[start:end])
    start = 0
    for index in range(1, len(blocks) + 1):
        if index == len(blocks) or not blocks[index].continues_code_of(blocks[index - 1]):
            if index - start > 1:
                mixed[start:index] = mixed[start:index].mean(axis=0)
            start = index
    return mixed


def pick_likeliest_roles(mixed: Probabilities) -> list[RolePrediction]:
    """The likeliest role of each row, the first of equals, and its probability."""
    best = mixed.argmax(axis=1)
    return [(ROLES[role], float(mixed[row, role])) for row, role in enumerate(best.tolist())]


def dump_weights(classifier: RoleClassifier) -> bytes:
    """The content of a weights file: only places that weigh anything, in half precision."""
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
    """A classifier whose rules decide alone; needs no weights file."""
    shape = (FEATURE_COUNT, len(ROLES))
    return RoleClassifier(np.zeros(shape, np.float32), np.zeros(len(ROLES), np.float32), 1.0)


@lru_cache(maxsize=1)
def load_default_classifier() -> RoleClassifier:
    """The classifier that ships with this package, read once."""
    return parse_weights(files("skills.roles").joinpath("weights.npz").read_bytes())
