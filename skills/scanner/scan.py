"""Finds suspicious content in the text of a skill, which is untrusted input.

Findings are input of a policy, not a verdict. Level 3 is dangerous; a match that is quoted, or that
the text warns against, is a level lower for each of the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice

from skills.record import ParsedSkill, SafetyFinding
from skills.scanner.encoded_payloads import find_encoded_payloads
from skills.scanner.normalised_text import NormalisedText
from skills.scanner.pattern_index import Candidate, PatternIndex
from skills.scanner.rule import Rule
from skills.scanner.rules.attack_patterns import ATTACK_PATTERN_RULES
from skills.scanner.rules.commands import COMMAND_RULES
from skills.scanner.rules.deception import DECEPTION_RULES
from skills.scanner.rules.hidden_text import find_hidden_characters, find_hidden_comments
from skills.scanner.rules.injected_instructions import INSTRUCTION_RULES
from skills.scanner.rules.prompt_injection import PROMPT_INJECTION_RULES
from skills.scanner.rules.takeover import TAKEOVER_RULES
from skills.scanner.rules.typosquatting import find_typosquats
from skills.scanner.signals.combinations import ALL_SIGNALS, find_combinations
from skills.scanner.signals.phrases import Signal

SCANNER_VERSION = 4
"""Increased whenever kinds or levels of findings may change; skills scanned by an older version are
scanned again."""
_SPOKEN_KINDS = frozenset({"prompt_injection", "deception", "obfuscation"})
MAX_FINDINGS = 200
"""Maximum findings kept per skill; the highest levels are kept."""
MAX_PER_RULE = 20
"""Maximum findings of one rule per skill."""
MAX_EXCERPT_CHARACTERS = 80
"""Maximum characters of the matched text that a reason quotes."""

RULES = (
    PROMPT_INJECTION_RULES
    + INSTRUCTION_RULES
    + DECEPTION_RULES
    + ATTACK_PATTERN_RULES
    + COMMAND_RULES
    + TAKEOVER_RULES
)


def scan_lines(lines: Sequence[str], body_line: int) -> tuple[SafetyFinding, ...]:
    """The findings of a SKILL.md, by line; `body_line` is the first line of its body.

    The frontmatter is scanned too, since its description reaches prompts first. Time is linear in
    the text. Reasons have no control characters and limited length.
    """
    text = NormalisedText(lines, body_line)
    findings = {
        SafetyFinding(kind, level, line, f"{what}: {escape_excerpt(seen)}" if seen else what)
        for kind, level, line, what, seen in _find_all(lines, text)
    }
    gravest = sorted(findings, key=lambda found: (-found.level, found.line))[:MAX_FINDINGS]
    return tuple(sorted(gravest, key=lambda found: (found.line, found.kind, found.reason)))


def scan_spoken(lines: Sequence[str]) -> tuple[SafetyFinding, ...]:
    """Those findings in a few lines of text that are addressed to the reader, hidden or encoded.

    Takes a third of the time of `scan_lines`.
    """
    text = NormalisedText(lines, len(lines) + 1)
    found = [
        ("hidden_text", line, level, what) for line, level, what in find_hidden_characters(lines)
    ]
    for rule, candidate in _spoken_index().find_in(text.spaced, text.parts).items():
        matches = _matches(rule, text, candidate)
        found += [(kind, line, level, what) for kind, level, line, what, _ in matches]
    found += [(kind, line, level, what) for kind, level, line, what, _ in _find_encoded(text)]
    found += [
        ("hidden_text", text.line_at(start), level, what)
        for start, level, what in find_hidden_comments(text)
    ]
    return tuple(SafetyFinding(kind, level, line, what) for kind, line, level, what in found)


def rescan(parsed: ParsedSkill) -> ParsedSkill:
    """The skill with findings of this version of the scanner; unchanged if it has them already.

    Findings in other files of the folder stay as they are, since those files are not stored.
    """
    record = parsed.record
    if record.scanner >= SCANNER_VERSION:
        return parsed
    of_siblings = tuple(finding for finding in record.safety if finding.file)
    findings = (*scan_lines(parsed.lines, parsed.body_line), *of_siblings)
    level = max((finding.level for finding in findings), default=0)
    rescanned = replace(record, safety=findings, safety_level=level, scanner=SCANNER_VERSION)
    return replace(parsed, record=rescanned)


def escape_excerpt(text: str) -> str:
    """The text cut to MAX_EXCERPT_CHARACTERS, with unprintable characters escaped."""
    cut = text if len(text) <= MAX_EXCERPT_CHARACTERS else text[: MAX_EXCERPT_CHARACTERS - 1] + "…"
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in cut)


@cache
def _index() -> PatternIndex[Rule | Signal]:
    return PatternIndex((*RULES, *ALL_SIGNALS), [rule for rule in RULES if not rule.in_line])


@cache
def _spoken_index() -> PatternIndex[Rule]:
    spoken = [rule for rule in RULES if rule.speech and rule.kind in _SPOKEN_KINDS]
    return PatternIndex(spoken, [rule for rule in spoken if not rule.in_line])


def _find_all(
    lines: Sequence[str], text: NormalisedText
) -> Iterator[tuple[str, int, int, str, str]]:
    for line, level, what in find_hidden_characters(lines):
        yield "hidden_text", level, line, what, ""
    candidates = _index().find_in(text.spaced, text.parts)
    for rule in RULES:
        if rule in candidates:
            yield from _matches(rule, text, candidates[rule])
    for start, level, what in find_combinations(text, candidates):
        yield "combination", level, text.line_at(start), what, ""
    for start, what in find_typosquats(text):
        yield "supply_chain", 2, text.line_at(start), what, ""
    yield from _find_encoded(text)
    for start, level, what in find_hidden_comments(text):
        yield "hidden_text", level, text.line_at(start), what, ""


def _find_encoded(text: NormalisedText) -> Iterator[tuple[str, int, int, str, str]]:
    """Findings in decoded text, with a higher level: honest text has no reason to encode these."""
    for start, decoded in find_encoded_payloads(text.display):
        inner = NormalisedText(decoded.split("\n"), 1)
        for _, level, what in find_combinations(inner, _index().find_in(inner.spaced, inner.parts)):
            yield "obfuscation", level, text.line_at(start), f"encoded text with {what}", ""
        candidates = _index().find_in(inner.spaced, [0])
        for rule in RULES:
            if rule in candidates:
                match = next(inner.find_all(candidates[rule]), None)
                if match:
                    seen = inner.display[match.start() : match.end()]
                    line = text.line_at(start)
                    yield "obfuscation", 3, line, f"encoded text that {rule.description}", seen


def _matches(
    rule: Rule, text: NormalisedText, candidate: Candidate
) -> Iterator[tuple[str, int, int, str, str]]:
    found = text.find_in_lines(candidate) if rule.in_line else text.find_in_windows(candidate)
    for match in islice(found, MAX_PER_RULE):
        start = match.start()
        quoted = text.is_quoted(start, in_code=rule.speech)
        refused = text.is_negated(start)
        refused = refused or (quoted and text.is_called_attack(start))
        of_attacks = text.is_about_attacks and (quoted if rule.speech else quoted or refused)
        mentioned = quoted + refused + of_attacks
        level = max(1, rule.level - mentioned)
        yield (
            rule.kind,
            level,
            text.line_at(start),
            rule.description,
            text.display[start : match.end()],
        )
