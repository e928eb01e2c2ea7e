"""A passage as rules and classifier see it: its headings, its lines and what introduces it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from skills.headings import paths_below_title
from skills.record import BlockKind, Passage, Section

READ = 400
"""Characters of a line that are read for cues."""


@dataclass(frozen=True, slots=True)
class Block:
    """A passage in its place.

    headings: from the nearest outwards, without the title. lines: those that are not blank. lead:
    the last line that introduces it. opening: whether it stands before the first heading below
    the title. All are cut at READ characters.
    """

    passage: Passage
    headings: tuple[str, ...]
    lines: tuple[str, ...]
    lead: str
    opening: bool

    def under(self, cue: re.Pattern[str]) -> bool:
        """Whether any of the headings gives the cue."""
        return any(cue.search(heading) for heading in self.headings)

    @property
    def first(self) -> str:
        """The first line."""
        return self.lines[0] if self.lines else ""

    @property
    def nearest(self) -> str:
        """The heading right above."""
        return self.headings[0] if self.headings else ""

    @property
    def introduces(self) -> bool:
        """Whether it is a paragraph that ends in a colon."""
        return (
            self.passage.kind is BlockKind.PARAGRAPH
            and bool(self.lines)
            and self.lines[-1].rstrip(" *_").endswith((":", "："))
        )

    def continues(self, before: Block) -> bool:
        """Whether it is a further chunk of the fenced code block that `before` is a chunk of."""
        return (
            self.passage.kind is before.passage.kind is BlockKind.CODE
            and self.passage.section == before.passage.section
            and not self.first.lstrip().startswith(("```", "~~~"))
        )


def read_blocks(
    lines: Sequence[str], sections: Sequence[Section], passages: Sequence[Passage]
) -> list[Block]:
    """One block a passage; `lines` are the lines of the whole file."""
    paths = [
        tuple(heading[:READ] for heading in reversed(path)) for path in paths_below_title(sections)
    ]
    blocks = []
    for passage in passages:
        text = lines[passage.first_line - 1 : passage.last_line]
        lead = ""
        if passage.lead_in >= 0:
            lead = lines[passages[passage.lead_in].last_line - 1][:READ].strip()
        path = paths[passage.section]
        kept = tuple(line[:READ] for line in text if line.strip())
        blocks.append(Block(passage, path, kept, lead, not path))
    return blocks


def list_runs(blocks: Sequence[Block]) -> list[tuple[int, int]]:
    """Lists, as [start, end): items of one section, in a row, under one lead-in."""
    runs: list[tuple[int, int]] = []
    for index, block in enumerate(blocks):
        if block.passage.kind is not BlockKind.LIST_ITEM:
            continue
        previous = blocks[index - 1].passage if index else None
        if (
            runs
            and runs[-1][1] == index
            and previous is not None
            and previous.section == block.passage.section
            and previous.lead_in == block.passage.lead_in
        ):
            runs[-1] = (runs[-1][0], index + 1)
        else:
            runs.append((index, index + 1))
    return runs
