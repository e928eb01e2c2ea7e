"""Which of the six roles a passage plays, in English and Chinese, by rules and a classifier."""

from __future__ import annotations

from collections.abc import Sequence

from skills.record import Passage, Section
from skills.roles.classifier import RoleClassifier, load_default_classifier
from skills.roles.passage_context import build_passage_contexts
from skills.roles.rules import RolePrediction

__all__ = ["RoleClassifier", "RolePrediction", "classify_passages"]


def classify_passages(
    lines: Sequence[str],
    sections: Sequence[Section],
    passages: Sequence[Passage],
    classifier: RoleClassifier | None = None,
) -> list[RolePrediction]:
    """The role of each passage and its probability.

    `lines` are the lines of the whole file; `sections` and `passages` its fragments. Without a
    classifier the one that ships with the package judges.
    """
    blocks = build_passage_contexts(lines, sections, passages)
    return (classifier or load_default_classifier()).predict(blocks)
