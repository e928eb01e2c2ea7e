"""Roles by rules over shape, headings and wording, in English and Chinese.

The first matching rule decides; each rule has its own confidence. Then items of a list get the role
of most of their lines, and a passage that only introduces the next gets the role of that passage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from skills.record import PassageKind, Role
from skills.roles import cues
from skills.roles.passage_context import PassageContext, find_lists

RolePrediction = tuple[Role, float]

SHELL_LANGUAGES = frozenset(
    {"bash", "sh", "shell", "zsh", "console", "powershell", "ps1", "sql", "cmd"}
)
"""Languages of code blocks with commands to enter."""

DATA_LANGUAGES = frozenset(
    {"", "json", "jsonc", "yaml", "yml", "toml", "text", "txt", "plaintext", "ini", "csv", "xml"}
)
"""Languages of code blocks with data or plain text."""

MAX_SETUP_LINES = 10
"""Maximum lines of a setup code block, fences included."""

_MAJORITY = 0.6
"""Share of a list's lines that decides the role of the whole list."""


def classify_by_rules(contexts: Sequence[PassageContext]) -> list[RolePrediction]:
    """Return the role of each passage of a document, and the confidence of its rule in [0, 1]."""
    predictions = [_RULES[context.passage.kind](context) for context in contexts]
    _agree_in_lists(contexts, predictions)
    _agree_in_code(contexts, predictions)
    _follow_introduced(contexts, predictions)
    return predictions


def _classify_code(context: PassageContext) -> RolePrediction:
    language = context.passage.language.lower()
    for applies, verdict in (
        (context.has_heading_cue("example"), (Role.EXAMPLE, 0.85)),
        (context.has_heading_cue("error"), (Role.ERROR_HANDLING, 0.6)),
        (
            context.has_heading_cue("setup") and len(context.lines) <= MAX_SETUP_LINES,
            (Role.PRECONDITION, 0.75),
        ),
        (context.is_marked_example, (Role.EXAMPLE, 0.85)),
        ("example" in context.lead_cues, (Role.EXAMPLE, 0.8)),
        (language in DATA_LANGUAGES and context.has_heading_cue("param"), (Role.PARAM, 0.65)),
        (language in SHELL_LANGUAGES and context.has_heading_cue("step"), (Role.STEP, 0.75)),
        (_is_imperative(context), (Role.STEP, 0.55)),
    ):
        if applies:
            return verdict
    return Role.EXAMPLE, 0.7


def _is_imperative(context: PassageContext) -> bool:
    """Return whether the lead-in is imperative and does not introduce an alternative."""
    return "imperative" in context.lead_cues and "alternative" not in context.lead_cues


def _classify_table(context: PassageContext) -> RolePrediction:
    columns = cues.find_cues(context.first_line.lower(), cues.COLUMNS)
    if "error" in columns or context.has_heading_cue("error"):
        return Role.ERROR_HANDLING, 0.75
    if "step" in columns:
        return Role.STEP, 0.55
    if "concept" in columns:
        return Role.CONCEPT, 0.55
    return Role.PARAM, 0.7


def _classify_text(context: PassageContext) -> RolePrediction:
    orders = "imperative" in context.line_cues
    nearest = context.heading_cues[0] if context.heading_cues else frozenset()
    if "problem" in context.line_cues or context.has_heading_cue("error"):
        return Role.ERROR_HANDLING, 0.75
    if cues.EXAMPLE_LEAD.match(context.first_line.lower()) or "example" in nearest:
        return Role.EXAMPLE, 0.6
    if "needed" in context.line_cues or context.has_heading_cue("setup"):
        return Role.PRECONDITION, 0.7
    if context.precedes_headings and context.passage.kind is PassageKind.PARAGRAPH:
        return Role.CONCEPT, 0.7
    if "param" in nearest and not orders:
        return Role.PARAM, 0.6
    if context.has_heading_cue("concept") and not orders:
        return Role.CONCEPT, 0.7
    if orders or context.has_heading_cue("step"):
        return Role.STEP, 0.65
    return _classify_by_form(context)


def _classify_by_form(context: PassageContext) -> RolePrediction:
    """Return the role of a text by its form; used if no heading decides."""
    if "definition" in context.line_cues:
        return Role.PARAM, 0.5
    if "numbered" in context.line_cues and "titled" not in context.line_cues:
        return Role.STEP, 0.55
    if "obligation" in context.line_cues:
        return Role.STEP, 0.45
    return Role.CONCEPT, 0.5


_RULES: dict[PassageKind, Callable[[PassageContext], RolePrediction]] = {
    PassageKind.CODE: _classify_code,
    PassageKind.TABLE: _classify_table,
    PassageKind.LIST_ITEM: _classify_text,
    PassageKind.PARAGRAPH: _classify_text,
}


def _agree_in_lists(contexts: Sequence[PassageContext], predictions: list[RolePrediction]) -> None:
    """Give the items of a list the role of most of their lines."""
    for start, end in find_lists(contexts):
        lines: Counter[Role] = Counter()
        for index in range(start, end):
            lines[predictions[index][0]] += len(contexts[index].lines)
        role, most = lines.most_common(1)[0]
        if most >= _MAJORITY * lines.total():
            for index in range(start, end):
                if predictions[index][0] is not role:
                    predictions[index] = (role, 0.5)


def _agree_in_code(contexts: Sequence[PassageContext], predictions: list[RolePrediction]) -> None:
    """Give the chunks of a code block the role of its first chunk."""
    for index in range(1, len(contexts)):
        if contexts[index].continues_code_of(contexts[index - 1]):
            predictions[index] = predictions[index - 1]


def _follow_introduced(
    contexts: Sequence[PassageContext], predictions: list[RolePrediction]
) -> None:
    """Give a paragraph that ends in a colon the role of the next passage, unless imperative."""
    for index in range(len(contexts) - 2, -1, -1):
        context, following = contexts[index], contexts[index + 1]
        if (
            context.introduces
            and context.passage.section == following.passage.section
            and "imperative" not in context.line_cues
        ):
            predictions[index] = (predictions[index + 1][0], 0.55)
