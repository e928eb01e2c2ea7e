"""Finds suspicious content in the text of a skill, which is untrusted input.

Findings are input of a policy, not a verdict. Level 3 is dangerous. The level of a match is lowered
by one if it is quoted, and by one if the text warns against it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import NamedTuple

from skills.record import ParsedSkill, SafetyFinding
from skills.required_words import replace_white_space
from skills.scanner.code_blocks import (
    LANGUAGES,
    PROGRAM_ENDINGS,
    Code,
    find_blocks,
    find_language,
    find_script,
    name_module,
)
from skills.scanner.context import Context
from skills.scanner.encoded_payloads import find_encoded_payloads
from skills.scanner.flow.harm import find_flows, may_have_flows, may_send_secrets
from skills.scanner.flow.meanings import is_known_installer, list_ideas
from skills.scanner.flow.names import hides_words
from skills.scanner.hidden_characters import find_hidden_characters
from skills.scanner.indicators import find_indicators, indicator_texts
from skills.scanner.normalised_text import NormalisedText
from skills.scanner.rule import list_rules
from skills.scanner.rules.packages import INSTALLS, find_packages, is_package_list
from skills.scanner.text_rule import Match, TextRule, list_text_rules
from skills.scanner.words import Concept, Places, WordFinder

SCANNER_VERSION = 16
"""Increased whenever rules or levels of findings may change; skills scanned by an older version are
scanned again."""
MAX_FINDINGS = 200
"""Maximum findings kept of a SKILL.md, and of all other files; the highest levels are kept.

There is no lower limit for a rule: a waiver of a rule must not cover findings that are not listed.
"""
MAX_EXCERPT_CHARACTERS = 80
"""Maximum characters of the matched text that a reason quotes."""

_ESCAPE = re.compile(r"\\(?:x|u00)([2-7][0-9a-fA-F])")
_SPOKEN_KINDS = frozenset({"prompt_injection", "deception", "obfuscation"})


class _Found(NamedTuple):
    rule: str
    level: int
    line: int
    quote: str


def scan_lines(lines: Sequence[str], body_line: int, path: str = "") -> tuple[SafetyFinding, ...]:
    """Return the findings of a file, by line; `body_line` is the first line of a SKILL.md's body.

    path: path of another file of the skill, whose ending gives its type; "" for the SKILL.md. The
    frontmatter is scanned too, since prompts contain its description first. Time is linear in the
    text. Reasons have no control characters and limited length.
    """
    lines = _resolve_escapes(lines)
    findings = {_to_finding(one, path) for one in _find_all(lines, body_line, path)}
    most_severe = sorted(findings, key=lambda found: (-found.level, found.line))[:MAX_FINDINGS]
    return tuple(sorted(most_severe, key=lambda found: (found.line, found.kind, found.reason)))


def scan_scripts(contents: Mapping[str, Sequence[str]]) -> Iterator[SafetyFinding]:
    """Yield findings about flows from one script of a skill to another. contents: path -> lines."""
    paths = [path for path in contents if path.lower().endswith(PROGRAM_ENDINGS)]
    if len(paths) < 2:
        return
    programs = {path: _resolve_escapes(contents[path]) for path in paths}
    whole = [*chain(*programs.values())]
    if not _find_import(whole, paths):
        return
    if not may_send_secrets(_find_places(NormalisedText(whole, 1, is_code=True))):
        return
    origins = [(path, number) for path, lines in programs.items() for number in range(len(lines))]
    codes, start = [], 0
    for path, lines in programs.items():
        found = find_script(path, lines)
        codes += [code._replace(first_line=code.first_line + start) for code in found]
        start += len(lines)
    for line, rule in find_flows(codes):
        path, number = origins[line - 1]
        yield make_finding(rule, number + 1, path, contents[path][number].strip())


def _find_import(lines: Sequence[str], paths: Sequence[str]) -> re.Match[str] | None:
    """Find where one of these scripts imports another one."""
    modules = "|".join(re.escape(name.lower()) for name in map(name_module, paths) if name)
    imports = rf"(?:import|from|require\()[\w ,.'\"/@-]{{0,80}}?\b(?:{modules})\b"
    return re.search(imports, replace_white_space("\n".join(lines).lower()))


def scan_spoken(lines: Sequence[str]) -> tuple[SafetyFinding, ...]:
    """Return findings in a few lines: words to the reader, hidden characters, encoded text."""
    text = NormalisedText(lines, len(lines) + 1)
    found = [*_find_hidden(lines), *_find_encoded(text)]
    found += _find_in_words(Context(text), _find_places(text), spoken_only=True)
    return tuple(_to_finding(one, "") for one in found)


def rescan(parsed: ParsedSkill) -> ParsedSkill:
    """Return the skill with findings of this version of the scanner; unchanged if it has them.

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


def make_finding(rule: str, line: int = 1, path: str = "", quote: str = "") -> SafetyFinding:
    """Make a finding of a rule at the rule's level."""
    return _to_finding(_Found(rule, list_rules()[rule].level, line, quote), path)


def _to_finding(found: _Found, path: str) -> SafetyFinding:
    rule = list_rules()[found.rule]
    quote = f": {escape_excerpt(found.quote)}" if found.quote else ""
    return SafetyFinding(rule.kind, found.level, found.line, rule.reason + quote, path)


def escape_excerpt(text: str) -> str:
    """Cut a text to MAX_EXCERPT_CHARACTERS, and escape unprintable characters."""
    cut = text if len(text) <= MAX_EXCERPT_CHARACTERS else text[: MAX_EXCERPT_CHARACTERS - 1] + "…"
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in cut)


def _resolve_escapes(lines: Iterable[str]) -> list[str]:
    """Replace escapes of letters and the like, which programs and JSON may have in strings."""
    return [_ESCAPE.sub(_resolve_escape, line) if "\\" in line else line for line in lines]


def _resolve_escape(escape: re.Match[str]) -> str:
    character = chr(int(escape[1], 16))
    return character if character.isalnum() or character in " ./:-_~" else escape[0]


def _find_all(lines: Sequence[str], body_line: int, path: str) -> Iterator[_Found]:
    is_code = is_package_list(path) or find_language(path, lines) is not None
    text = NormalisedText(lines, body_line, is_code=is_code)
    places, context = _find_places(text), Context(text)
    yield from _find_hidden(lines)
    yield from _find_in_words(context, places)
    yield from _find_encoded(text)
    for package in find_packages(text, places, path):
        yield _weigh(context, *package)
    for start, quote in find_indicators(places):
        yield _weigh(context, "campaign-indicator", start, quote)
    for line, rule in _find_in_code(lines, path, text, places):
        line = min(line, len(lines))
        start = text.offset_of(line)
        if not text.in_code(start):  # the text that introduces a code span may negate it
            start = max(start, text.folded.find("`", start, start + MAX_EXCERPT_CHARACTERS * 4))
        yield _weigh(context, rule, start, lines[line - 1].strip())


def _find_in_code(
    lines: Sequence[str], path: str, text: NormalisedText, places: Places
) -> list[tuple[int, str]]:
    """Return (line, rule) of harmful flows, if words show that there may be some."""
    may_hide_words = find_language(path, lines) in (None, "shell") and hides_words(text.spaced)
    if not may_hide_words and not may_have_flows(places, LANGUAGES.keys()):
        return []
    codes = [*find_script(path, lines)] if path else []
    codes = codes or [*find_blocks(lines, text.fenced)]
    languages = {code.language for code in codes}
    return find_flows(codes) if may_hide_words or may_have_flows(places, languages) else []


def _find_hidden(lines: Sequence[str]) -> Iterator[_Found]:
    for line, level, what in find_hidden_characters(lines):
        yield _Found("hidden-characters", level, line, what)


def _find_in_words(
    context: Context, places: Places, *, spoken_only: bool = False
) -> Iterator[_Found]:
    text = context.text
    for rule in _list_text_rules(text.is_code):
        spoken = _is_spoken(rule)
        if places.may_have(rule.ideas) and (spoken or not spoken_only):
            matches = (
                match
                for match in rule.find(places)
                if spoken or not rule.spoken or not text.in_code(match.start)
            )
            yield from _weigh_matches(context, rule, matches)


def _weigh_matches(context: Context, rule: TextRule, matches: Iterable[Match]) -> Iterator[_Found]:
    """Yield the matches weighed; of overlapping ones the most severe, or the first of a level."""
    last, end = None, 0
    for match in matches:
        found = _weigh_words(context, rule, match)
        if last and match.start >= end:
            yield last
            last = None
        if last is None or found.level > last.level:
            last, end = found, match.end
    if last:
        yield last


@cache
def _is_spoken(rule: TextRule) -> bool:
    """Return whether a rule is about words to the reader, which code may contain too."""
    return rule.spoken and list_rules()[rule.rule].kind in _SPOKEN_KINDS


@cache
def _list_text_rules(is_code: bool) -> Sequence[TextRule]:
    """Return the rules for a text; for scripts, only those spoken rules that are `_is_spoken`."""
    return [rule for rule in list_text_rules() if not (is_code and rule.spoken) or _is_spoken(rule)]


def _weigh_words(context: Context, rule: TextRule, match: Match) -> _Found:
    quote = context.text.display[match.start : match.end]
    known = rule.rule == "powershell-download" and is_known_installer(quote)
    name = "known-download-run" if known else rule.rule
    return _weigh(context, name, match.start, quote, speech=rule.spoken, deed=match.deed)


def _find_places(text: NormalisedText) -> Places:
    return Places(text, _words(indicator_texts(), text.is_code))


@cache
def _words(indicators: Concept, is_code: bool = False) -> WordFinder:
    rules = _list_text_rules(is_code)
    concepts = {one for rule in rules for group in rule.ideas for one in group}
    return WordFinder((*concepts, *list_ideas().values(), indicators, INSTALLS))


def _weigh(
    context: Context, rule: str, start: int, quote: str, *, speech: bool = False, deed: int = 0
) -> _Found:
    """Return a match with its level. deed: as in `Match`, if it is behind the start."""
    level = context.lower_level(
        list_rules()[rule].level, start, start + len(quote), max(start, deed), speech=speech
    )
    return _Found(rule, level, context.text.line_at(start), quote)


def _find_encoded(text: NormalisedText) -> Iterator[_Found]:
    """Yield findings in decoded text at the highest level, as honest text does not encode these."""
    for start, decoded in find_encoded_payloads(text.display):
        lines = decoded.split("\n")
        inner = NormalisedText(lines, 1)
        places = _find_places(inner)
        found = [*_find_in_words(Context(inner), places)]
        codes = [Code(language, decoded, 1) for language in LANGUAGES]
        flows = find_flows(codes) if may_have_flows(places, LANGUAGES.keys()) else ()
        found += [_Found(rule, 3, line, "") for line, rule in flows]
        for one in found:
            reason = f"{list_rules()[one.rule].reason}, {one.quote}"
            yield _Found("encoded-order", 3, text.line_at(start), reason)
