"""Which of the six roles a passage plays, by rules over its shape, headings and wording.

English and Chinese. The first rule that fits decides, and each carries the confidence that it
has earned on labelled skills; the passages around may then decide for one that only introduces
them, and the items of a list agree.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from skills.headings import paths_below_title
from skills.record import BlockKind, Passage, Role, Section
from skills.roles import cues

__all__ = ["Verdict", "classify"]

Verdict = tuple[Role, float]

_SHELL = frozenset({"bash", "sh", "shell", "zsh", "console", "powershell", "ps1", "sql", "cmd"})
_DATA = frozenset(
    {"", "json", "jsonc", "yaml", "yml", "toml", "text", "txt", "plaintext", "ini", "csv", "xml"}
)
_SETUP_LINES = 10
"""Lines of a code block, fences included, that installs or sets up rather than works."""
_MAJORITY = 0.6
"""Share of a list's lines that decides for the whole list."""
_READ = 400
"""Characters of a line that are read for cues."""


@dataclass(frozen=True, slots=True)
class _Block:
    """A passage as the rules see it.

    headings: from the nearest outwards, without the title. lead: the last line that introduces it.
    opening: whether it stands before the first heading below the title.
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
        """The first line, as far as it is read."""
        return self.lines[0] if self.lines else ""

    @property
    def nearest(self) -> str:
        """The heading right above."""
        return self.headings[0] if self.headings else ""


def classify(
    lines: Sequence[str], sections: Sequence[Section], passages: Sequence[Passage]
) -> list[Verdict]:
    """The role of each passage and how sure the rules are of it, in [0, 1].

    `lines` are the lines of the whole file; `sections` and `passages` its fragments.
    """
    paths = paths_below_title(sections)
    blocks = [_block(lines, paths[passage.section], passages, passage) for passage in passages]
    verdicts = [_RULES[block.passage.kind](block) for block in blocks]
    _agree_in_lists(blocks, verdicts)
    _agree_in_code(blocks, verdicts)
    _follow_introduced(blocks, verdicts)
    return verdicts


def _block(
    lines: Sequence[str],
    path: tuple[str, ...],
    passages: Sequence[Passage],
    passage: Passage,
) -> _Block:
    text = lines[passage.first_line - 1 : passage.last_line]
    lead = ""
    if passage.lead_in >= 0:
        lead = lines[passages[passage.lead_in].last_line - 1]
    return _Block(
        passage,
        tuple(heading[:_READ] for heading in reversed(path)),
        tuple(line[:_READ] for line in text if line.strip()),
        lead[:_READ].strip(),
        not path,
    )


def _code(block: _Block) -> Verdict:
    language = block.passage.language.lower()
    for applies, verdict in (
        (block.under(cues.EXAMPLE_HEADING), (Role.EXAMPLE, 0.85)),
        (block.under(cues.ERROR_HEADING), (Role.ERROR_HANDLING, 0.6)),
        (
            block.under(cues.SETUP_HEADING) and len(block.lines) <= _SETUP_LINES,
            (Role.PRECONDITION, 0.75),
        ),
        (any(map(cues.MARKED_EXAMPLE.search, block.lines)), (Role.EXAMPLE, 0.85)),
        (bool(cues.EXAMPLE_LEAD.search(block.lead)), (Role.EXAMPLE, 0.8)),
        (language in _DATA and block.under(cues.PARAM_HEADING), (Role.PARAM, 0.65)),
        (language in _SHELL and block.under(cues.STEP_HEADING), (Role.STEP, 0.75)),
        (_orders(block.lead), (Role.STEP, 0.55)),
    ):
        if applies:
            return verdict
    return Role.EXAMPLE, 0.7


def _orders(lead: str) -> bool:
    """Whether a lead-in tells to do what its code does, and does not merely offer a way."""
    return bool(cues.IMPERATIVE.search(lead)) and not cues.ALTERNATIVE.search(lead)


def _table(block: _Block) -> Verdict:
    if cues.ERROR_COLUMN.search(block.first) or block.under(cues.ERROR_HEADING):
        return Role.ERROR_HANDLING, 0.75
    if cues.STEP_COLUMN.search(block.first):
        return Role.STEP, 0.55
    if cues.CONCEPT_COLUMN.search(block.first):
        return Role.CONCEPT, 0.55
    return Role.PARAM, 0.7


def _text(block: _Block) -> Verdict:
    first = block.first
    orders = bool(cues.IMPERATIVE.search(first))
    if cues.PROBLEM.search(first) or block.under(cues.ERROR_HEADING):
        return Role.ERROR_HANDLING, 0.75
    if cues.EXAMPLE_LEAD.match(first) or cues.EXAMPLE_HEADING.search(block.nearest):
        return Role.EXAMPLE, 0.6
    if cues.NEEDED.search(first) or block.under(cues.SETUP_HEADING):
        return Role.PRECONDITION, 0.7
    if block.opening and block.passage.kind is BlockKind.PARAGRAPH:
        return Role.CONCEPT, 0.7
    if cues.PARAM_HEADING.search(block.nearest) and not orders:
        return Role.PARAM, 0.6
    if block.under(cues.CONCEPT_HEADING) and not orders:
        return Role.CONCEPT, 0.7
    if orders or block.under(cues.STEP_HEADING):
        return Role.STEP, 0.65
    return _plain(block)


def _plain(block: _Block) -> Verdict:
    """Text without a heading that speaks: by its form."""
    if cues.DEFINITION.search(block.first):
        return Role.PARAM, 0.5
    if cues.NUMBERED.match(block.first) and not cues.TITLED.match(block.first):
        return Role.STEP, 0.55
    if cues.OBLIGATION.search(block.first):
        return Role.STEP, 0.45
    return Role.CONCEPT, 0.5


_RULES: dict[BlockKind, Callable[[_Block], Verdict]] = {
    BlockKind.CODE: _code,
    BlockKind.TABLE: _table,
    BlockKind.LIST_ITEM: _text,
    BlockKind.PARAGRAPH: _text,
}


def _agree_in_lists(blocks: Sequence[_Block], verdicts: list[Verdict]) -> None:
    """Give the items of one list the role that most of their lines have."""
    for start, end in _runs(blocks, BlockKind.LIST_ITEM):
        lines: Counter[Role] = Counter()
        for index in range(start, end):
            lines[verdicts[index][0]] += len(blocks[index].lines)
        role, most = lines.most_common(1)[0]
        if most >= _MAJORITY * lines.total():
            for index in range(start, end):
                if verdicts[index][0] is not role:
                    verdicts[index] = (role, 0.5)


def _agree_in_code(blocks: Sequence[_Block], verdicts: list[Verdict]) -> None:
    """The chunks of one code block, fenced once, take the role of its first."""
    for index in range(1, len(blocks)):
        before, block = blocks[index - 1], blocks[index]
        if (
            block.passage.kind is before.passage.kind is BlockKind.CODE
            and block.passage.section == before.passage.section
            and not block.first.lstrip().startswith(("```", "~~~"))
        ):
            verdicts[index] = verdicts[index - 1]


def _runs(blocks: Sequence[_Block], kind: BlockKind) -> list[tuple[int, int]]:
    """Stretches of passages of one kind within a section, [start, end), under one lead-in."""
    runs: list[tuple[int, int]] = []
    for index, block in enumerate(blocks):
        if block.passage.kind is not kind:
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


def _follow_introduced(blocks: Sequence[_Block], verdicts: list[Verdict]) -> None:
    """A paragraph that ends in a colon takes the role of what it introduces, unless it orders."""
    for index in range(len(blocks) - 2, -1, -1):
        block, following = blocks[index], blocks[index + 1]
        if (
            block.passage.kind is BlockKind.PARAGRAPH
            and block.passage.section == following.passage.section
            and block.lines
            and block.lines[-1].rstrip(" *_").endswith((":", "："))
            and not cues.IMPERATIVE.search(block.first)
        ):
            verdicts[index] = (verdicts[index + 1][0], 0.55)
