"""Marks what is suspicious in the text of a skill, which is hostile input.

A finding is a mark for a policy to act on, not a verdict. Level 3 is dangerous where it stands;
what is only quoted, or named to be refused, counts a level lower for each of the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice

from skills.record import ParsedSkill, SafetyFinding
from skills.scanner.anchors import Anchors
from skills.scanner.payloads import payloads
from skills.scanner.rule import Rule
from skills.scanner.rules.commands import COMMANDS
from skills.scanner.rules.deception import DECEPTION
from skills.scanner.rules.hidden_text import hidden_characters, hidden_comments
from skills.scanner.rules.orders import ORDERS
from skills.scanner.rules.package_names import bait
from skills.scanner.rules.schemes import SCHEMES
from skills.scanner.rules.speech import SPEECH
from skills.scanner.rules.takeover import TAKEOVER
from skills.scanner.scanned_text import Text
from skills.scanner.signals.combine import ALL_SIGNS, signs_together

SCANNER = 3
"""The version of the scanner: raised whenever it may say something else of a text, so that marks
of an older one are made anew."""
MAX_FINDINGS = 200
"""Findings kept of one skill, the gravest first; beyond that they say nothing new."""
MAX_PER_RULE = 20
"""Findings of one rule in one skill."""
SHOWN = 80
"""Characters of what was seen that a reason quotes."""

RULES = SPEECH + ORDERS + DECEPTION + SCHEMES + COMMANDS + TAKEOVER

__all__ = ["MAX_FINDINGS", "MAX_PER_RULE", "SCANNER", "SHOWN", "remarked", "scan"]


def scan(lines: Sequence[str], body_line: int) -> tuple[SafetyFinding, ...]:
    """The findings of a SKILL.md, by line; `body_line` is the first line of its body.

    The frontmatter is read as well: its description reaches a prompt before anything else
    does. Time is linear in the text. A reason holds no control characters and is bounded.
    """
    text = Text(lines, body_line)
    findings = {
        SafetyFinding(kind, level, line, f"{what}: {shown(seen)}" if seen else what)
        for kind, level, line, what, seen in _seen(lines, text)
    }
    gravest = sorted(findings, key=lambda found: (-found.level, found.line))[:MAX_FINDINGS]
    return tuple(sorted(gravest, key=lambda found: (found.line, found.kind, found.reason)))


def remarked(parsed: ParsedSkill) -> ParsedSkill:
    """The skill with the marks of this scanner, as it is where it has them.

    Of the files beside SKILL.md only the marks are kept and not the text, so those stay.
    """
    record = parsed.record
    if record.scanner >= SCANNER:
        return parsed
    beside = tuple(mark for mark in record.safety if mark.file)
    marks = (*scan(parsed.lines, parsed.body_line), *beside)
    level = max((mark.level for mark in marks), default=0)
    marked = replace(record, safety=marks, safety_level=level, scanner=SCANNER)
    return replace(parsed, record=marked)


def shown(text: str) -> str:
    """What was seen, cut to SHOWN characters, with everything unprintable escaped."""
    cut = text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in cut)


@cache
def _anchors() -> Anchors:
    of_rules = (anchor for one in RULES for anchor in one.anchors)
    of_signs = (anchor for one in ALL_SIGNS for anchor in one.anchors)
    return Anchors((*of_rules, *of_signs))


def _seen(lines: Sequence[str], text: Text) -> Iterator[tuple[str, int, int, str, str]]:
    for line, level, what in hidden_characters(lines):
        yield "hidden_text", level, line, what, ""
    present = _anchors().within(text.folded)
    for rule in RULES:
        if not present.isdisjoint(rule.anchors):
            yield from _matches(rule, text, present)
    for start, level, what in signs_together(text, present):
        yield "combination", level, text.line_at(start), what, ""
    for start, what in bait(text.folded):
        yield "supply_chain", 2, text.line_at(start), what, ""
    yield from _encoded(text)
    for start, level, what in hidden_comments(text):
        yield "hidden_text", level, text.line_at(start), what, ""


def _encoded(text: Text) -> Iterator[tuple[str, int, int, str, str]]:
    """Encoded text that would be marked if it could be read: nobody hides that for good reason."""
    for start, decoded in payloads(text.seen):
        inner = Text(decoded.split("\n"), 1)
        present = _anchors().within(inner.folded)
        for _, level, what in signs_together(inner, present):
            yield "obfuscation", level, text.line_at(start), f"encoded text with {what}", ""
        for rule in RULES:
            if not present.isdisjoint(rule.anchors):
                match = rule.pattern.search(inner.folded)
                if match:
                    seen = inner.seen[match.start() : match.end()]
                    line = text.line_at(start)
                    yield "obfuscation", 3, line, f"encoded text that {rule.what}", seen


def _matches(
    rule: Rule, text: Text, present: frozenset[str]
) -> Iterator[tuple[str, int, int, str, str]]:
    anchors = [one for one in rule.anchors if one in present]
    windows = text.lines_with(anchors) if rule.in_line else text.windows(anchors)
    found = (
        match for start, end in windows for match in rule.pattern.finditer(text.folded, start, end)
    )
    for match in islice(found, MAX_PER_RULE):
        start = match.start()
        quoted = text.quoted(start, in_code=rule.speech)
        refused = text.refused(start)
        mentioned = quoted + refused + (quoted and rule.speech and text.teaches)
        level = max(1, rule.level - mentioned)
        yield rule.kind, level, text.line_at(start), rule.what, text.seen[start : match.end()]
