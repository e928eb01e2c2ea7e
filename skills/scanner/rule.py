"""Rules of the scanner. What each finds is in `skills.scanner.rules`; its level, reason and remedy
are in `data/rules.toml`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from skills.filtered_pattern import FilteredPattern
from skills.record import SafetyFinding
from skills.scanner.data_files import read_text


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule as `data/rules.toml` describes it."""

    id: str
    kind: str
    level: int
    reason: str
    remedy: str
    version: int


@cache
def list_rules() -> Mapping[str, Rule]:
    """All rules by id."""
    plain = tomllib.loads(read_text("rules.toml"))
    return {name: Rule(id=name, **fields) for name, fields in plain.items()}


@cache
def _rules_by_reason() -> Mapping[str, Rule]:
    return {rule.reason: rule for rule in list_rules().values()}


def find_rule(finding: SafetyFinding) -> Rule | None:
    """The rule of a finding; None if it is of an older scanner or a second opinion."""
    return _rules_by_reason().get(finding.reason.partition(": ")[0])


def get_quote(finding: SafetyFinding) -> str:
    """The text of the skill that a finding quotes, "" if it quotes none."""
    return finding.reason.partition(": ")[2]


@dataclass(frozen=True, slots=True, eq=False)
class PatternRule:
    """A rule with alternatives of a pattern, in lower case.

    speech: the pattern matches words addressed to the reader, which code or quotes only mention.
    """

    rule: str
    ways: tuple[FilteredPattern, ...]
    speech: bool


@dataclass(frozen=True, slots=True, eq=False)
class Concept:
    """An idea that words express in many ways, each an alternative."""

    ways: tuple[FilteredPattern, ...]

    def search(self, text: str, start: int, end: int) -> tuple[int, int] | None:
        """The range of the first match of the first alternative that matches in a range."""
        found = (way.pattern.search(text, start, end) for way in self.ways)
        return next((match.span() for match in found if match), None)


@dataclass(frozen=True, slots=True, eq=False)
class OrderRule:
    """A rule that finds concepts together in a sentence, or in it and its neighbours.

    concepts: the first is looked for first, so it should be rare. reach: how many sentences away
    the others may be. unless: what must not be said there. spoken: whether these are words to the
    reader, which code or quotes only mention. ordered: whether they follow each other.
    """

    rule: str
    concepts: tuple[Concept, ...]
    reach: int = 0
    unless: Concept | None = None
    spoken: bool = True
    ordered: bool = False


def make_patterns(rule: str, *alternatives: str, speech: bool = False) -> PatternRule:
    """A rule of alternatives, which are verbose regular expressions: white space is ignored."""
    ways = tuple(FilteredPattern(way, re.VERBOSE) for way in alternatives)
    return PatternRule(rule, ways, speech)


def make_concept(words: str = "", *, chinese: str = "", also: str = "") -> Concept:
    """A concept of words and phrases separated by spaces, with `_` for a space within a phrase.

    chinese: words that may be within others. also: a regular expression.
    """
    listed = [re.escape(word).replace("_", "[ -]") for word in words.split()]
    ways = [rf"\b(?:{'|'.join(listed)})\b"] if listed else []
    ways += ["|".join(map(re.escape, chinese.split()))] if chinese else []
    ways += _split_alternatives(also) if also else []
    return Concept(tuple(map(FilteredPattern, ways)))


def _split_alternatives(regex: str) -> list[str]:
    """The alternatives of an expression; those within groups stay together.

    Words that an alternative requires say at once that it cannot match, which is seldom so of all.
    """
    depth, parts, start = 0, [], 0
    for token in re.finditer(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[()|]", regex):
        depth += (token[0] == "(") - (token[0] == ")")
        if token[0] == "|" and not depth:
            parts.append(regex[start : token.start()])
            start = token.end()
    return [*parts, regex[start:]]
