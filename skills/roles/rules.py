"""Roles by rules over shape, headings and wording, in English and Chinese.

The first rule that fits decides, and each carries a confidence of its own. The passages around
may then decide for one that only introduces them, and the items of a list agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from skills.record import BlockKind, Role
from skills.roles import cues
from skills.roles.blocks import Block, list_runs

Verdict = tuple[Role, float]

SHELL = frozenset({"bash", "sh", "shell", "zsh", "console", "powershell", "ps1", "sql", "cmd"})
"""Languages of commands to enter."""

DATA = frozenset(
    {"", "json", "jsonc", "yaml", "yml", "toml", "text", "txt", "plaintext", "ini", "csv", "xml"}
)
"""Languages of data and plain text."""

SETUP_LINES = 10
"""Lines of a code block, fences included, that installs or sets up rather than works."""

_MAJORITY = 0.6
"""Share of a list's lines that decides for the whole list."""


def judge(blocks: Sequence[Block]) -> list[Verdict]:
    """The role of each block of a document, and how sure its rule is, in [0, 1]."""
    verdicts = [_RULES[block.passage.kind](block) for block in blocks]
    _agree_in_lists(blocks, verdicts)
    _agree_in_code(blocks, verdicts)
    _follow_introduced(blocks, verdicts)
    return verdicts


def _code(block: Block) -> Verdict:
    language = block.passage.language.lower()
    for applies, verdict in (
        (block.under("example"), (Role.EXAMPLE, 0.85)),
        (block.under("error"), (Role.ERROR_HANDLING, 0.6)),
        (
            block.under("setup") and len(block.lines) <= SETUP_LINES,
            (Role.PRECONDITION, 0.75),
        ),
        (block.marked, (Role.EXAMPLE, 0.85)),
        ("example" in block.asked, (Role.EXAMPLE, 0.8)),
        (language in DATA and block.under("param"), (Role.PARAM, 0.65)),
        (language in SHELL and block.under("step"), (Role.STEP, 0.75)),
        (_orders(block), (Role.STEP, 0.55)),
    ):
        if applies:
            return verdict
    return Role.EXAMPLE, 0.7


def _orders(block: Block) -> bool:
    """Whether a lead-in tells to do what its code does, and does not merely offer a way."""
    return "imperative" in block.asked and "alternative" not in block.asked


def _table(block: Block) -> Verdict:
    columns = cues.given(block.first.lower(), cues.COLUMNS)
    if "error" in columns or block.under("error"):
        return Role.ERROR_HANDLING, 0.75
    if "step" in columns:
        return Role.STEP, 0.55
    if "concept" in columns:
        return Role.CONCEPT, 0.55
    return Role.PARAM, 0.7


def _text(block: Block) -> Verdict:
    orders = "imperative" in block.said
    nearest = block.headed[0] if block.headed else frozenset()
    if "problem" in block.said or block.under("error"):
        return Role.ERROR_HANDLING, 0.75
    if cues.EXAMPLE_LEAD.match(block.first.lower()) or "example" in nearest:
        return Role.EXAMPLE, 0.6
    if "needed" in block.said or block.under("setup"):
        return Role.PRECONDITION, 0.7
    if block.opening and block.passage.kind is BlockKind.PARAGRAPH:
        return Role.CONCEPT, 0.7
    if "param" in nearest and not orders:
        return Role.PARAM, 0.6
    if block.under("concept") and not orders:
        return Role.CONCEPT, 0.7
    if orders or block.under("step"):
        return Role.STEP, 0.65
    return _plain(block)


def _plain(block: Block) -> Verdict:
    """Text without a heading that speaks: by its form."""
    if "definition" in block.said:
        return Role.PARAM, 0.5
    if "numbered" in block.said and "titled" not in block.said:
        return Role.STEP, 0.55
    if "obligation" in block.said:
        return Role.STEP, 0.45
    return Role.CONCEPT, 0.5


_RULES: dict[BlockKind, Callable[[Block], Verdict]] = {
    BlockKind.CODE: _code,
    BlockKind.TABLE: _table,
    BlockKind.LIST_ITEM: _text,
    BlockKind.PARAGRAPH: _text,
}


def _agree_in_lists(blocks: Sequence[Block], verdicts: list[Verdict]) -> None:
    """Give the items of one list the role that most of their lines have."""
    for start, end in list_runs(blocks):
        lines: Counter[Role] = Counter()
        for index in range(start, end):
            lines[verdicts[index][0]] += len(blocks[index].lines)
        role, most = lines.most_common(1)[0]
        if most >= _MAJORITY * lines.total():
            for index in range(start, end):
                if verdicts[index][0] is not role:
                    verdicts[index] = (role, 0.5)


def _agree_in_code(blocks: Sequence[Block], verdicts: list[Verdict]) -> None:
    """The chunks of one code block, fenced once, take the role of its first."""
    for index in range(1, len(blocks)):
        if blocks[index].continues(blocks[index - 1]):
            verdicts[index] = verdicts[index - 1]


def _follow_introduced(blocks: Sequence[Block], verdicts: list[Verdict]) -> None:
    """A paragraph that ends in a colon takes the role of what it introduces, unless it orders."""
    for index in range(len(blocks) - 2, -1, -1):
        block, following = blocks[index], blocks[index + 1]
        if (
            block.introduces
            and block.passage.section == following.passage.section
            and "imperative" not in block.said
        ):
            verdicts[index] = (verdicts[index + 1][0], 0.55)
