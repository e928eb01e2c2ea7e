"""Passages with their context for rules and classifier: headings, lines and lead-in."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import NamedTuple

from skills.passages.headings import heading_paths_below_title
from skills.record import Passage, PassageKind, Section
from skills.roles import cues

MAX_LINE_CHARACTERS = 400
"""Maximum characters of a line that are searched for cues."""


class PassageContext(NamedTuple):
    """A passage with its context.

    headings: from the nearest outwards, without the title. lines: without blank lines. lead: last
    line of its lead-in. All are cut at MAX_LINE_CHARACTERS. heading_cues, line_cues, lead_cues:
    names of the cues in its headings, its first line (unless it is code) and its lead-in.
    is_marked_example: whether it is code with a line that marks an example.
    """

    passage: Passage
    headings: tuple[str, ...]
    lines: tuple[str, ...]
    lead: str
    heading_cues: tuple[frozenset[str], ...]
    line_cues: frozenset[str]
    lead_cues: frozenset[str]
    is_marked_example: bool

    def has_heading_cue(self, cue: str) -> bool:
        """Return whether any of the headings has the cue."""
        return any(cue in given for given in self.heading_cues)

    @property
    def precedes_headings(self) -> bool:
        """Whether the passage precedes the first heading below the title."""
        return not self.headings

    @property
    def first_line(self) -> str:
        """The first non-blank line, "" without one."""
        return self.lines[0] if self.lines else ""

    @property
    def nearest_heading(self) -> str:
        """The innermost heading above the passage, "" without one."""
        return self.headings[0] if self.headings else ""

    @property
    def introduces(self) -> bool:
        """Whether the passage is a paragraph that ends in a colon."""
        return (
            self.passage.kind is PassageKind.PARAGRAPH
            and bool(self.lines)
            and self.lines[-1].rstrip(" *_").endswith((":", "："))
        )

    def continues_code_of(self, before: PassageContext) -> bool:
        """Return whether the passage is the next chunk of the fenced code block of `before`."""
        return continues_code(before.passage, self.passage, self.first_line)


def continues_code(before: Passage, passage: Passage, first_line: str) -> bool:
    """Return whether a passage is the next chunk of the fenced code block of `before`."""
    return (
        passage.kind is before.kind is PassageKind.CODE
        and passage.section == before.section
        and not first_line.lstrip().startswith(("```", "~~~"))
    )


def build_passage_contexts(
    lines: Sequence[str], sections: Sequence[Section], passages: Sequence[Passage]
) -> list[PassageContext]:
    """Return the context of each passage; `lines` are the lines of the whole file."""
    paths = [
        tuple(heading[:MAX_LINE_CHARACTERS] for heading in reversed(path))
        for path in heading_paths_below_title(sections)
    ]
    known = {
        heading: cues.find_cues(heading.lower(), cues.HEADINGS) for heading in set(chain(*paths))
    }
    # The items of a list have the same lead-in.
    find_wording = cache(lambda text: cues.find_cues(text, cues.WORDING))
    contexts: list[PassageContext] = []
    for passage in passages:
        path = paths[passage.section]
        text = lines[passage.first_line - 1 : passage.last_line]
        kept = tuple(line[:MAX_LINE_CHARACTERS] for line in text if line.strip())
        lead = ""
        if passage.lead_in >= 0:
            lead = lines[passages[passage.lead_in].last_line - 1][:MAX_LINE_CHARACTERS].strip()
        heading_cues = tuple(known[heading] for heading in path)
        is_code = passage.kind is PassageKind.CODE
        first = kept[0].lower() if kept and not is_code else ""
        line_cues, lead_cues = find_wording(first), find_wording(lead.lower())
        marked = is_code and any(map(cues.MARKED_EXAMPLE.match, map(str.lower, kept)))
        contexts.append(
            PassageContext(passage, path, kept, lead, heading_cues, line_cues, lead_cues, marked)
        )
    return contexts


def find_lists(contexts: Sequence[PassageContext]) -> list[tuple[int, int]]:
    """Return lists as [start, end): consecutive items of one section with the same lead-in."""
    runs: list[tuple[int, int]] = []
    for index, context in enumerate(contexts):
        if context.passage.kind is not PassageKind.LIST_ITEM:
            continue
        passage, previous = context.passage, contexts[index - 1].passage
        if (
            runs
            and runs[-1][1] == index
            and (passage.section, passage.lead_in) == (previous.section, previous.lead_in)
        ):
            runs[-1] = (runs[-1][0], index + 1)
        else:
            runs.append((index, index + 1))
    return runs
