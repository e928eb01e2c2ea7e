"""Which of the six roles a passage plays, in English and Chinese, by rules and a classifier."""

from __future__ import annotations

from collections.abc import Sequence

from skills.record import Passage, Section
from skills.roles.blocks import read_blocks
from skills.roles.classifier import RoleClassifier, load_weights
from skills.roles.rules import Verdict

__all__ = ["RoleClassifier", "Verdict", "classify"]


def classify(
    lines: Sequence[str],
    sections: Sequence[Section],
    passages: Sequence[Passage],
    classifier: RoleClassifier | None = None,
) -> list[Verdict]:
    """The role of each passage and its probability.

    `lines` are the lines of the whole file; `sections` and `passages` its fragments. Without a
    classifier the one that ships with the package judges.
    """
    blocks = read_blocks(lines, sections, passages)
    return (classifier or load_weights()).judge(blocks)
