"""Which of the six roles a passage plays, in English and Chinese."""

from __future__ import annotations

from collections.abc import Sequence

from skills.record import Passage, Section
from skills.roles.blocks import read_blocks
from skills.roles.rules import Verdict, judge

__all__ = ["Verdict", "classify"]


def classify(
    lines: Sequence[str], sections: Sequence[Section], passages: Sequence[Passage]
) -> list[Verdict]:
    """The role of each passage and how sure that is, in [0, 1].

    `lines` are the lines of the whole file; `sections` and `passages` its fragments.
    """
    return judge(read_blocks(lines, sections, passages))
