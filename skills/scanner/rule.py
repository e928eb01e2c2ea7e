"""Rules of the scanner: alternative patterns each.

Patterns match lower-cased text. Bounded repeats keep the time linear, and a rule runs only if one
of its anchors occurs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from skills.filtered_pattern import FilteredPattern


@dataclass(frozen=True, eq=False)
class Rule:
    """Alternatives of a pattern, `ways`; a text without any of the anchors cannot match.

    speech: the pattern matches words addressed to the reader, which a fenced block or quotes only
    mention. in_line: a match lies within one joined line of NormalisedText.
    """

    kind: str
    level: int
    description: str
    anchors: tuple[str, ...]
    ways: tuple[FilteredPattern, ...]
    speech: bool
    in_line: bool


def make_rule(
    kind: str,
    level: int,
    description: str,
    anchors: tuple[str, ...],
    *alternatives: str,
    speech: bool = False,
    in_line: bool = False,
) -> Rule:
    """A rule that matches any of the alternatives, which are verbose regular expressions: white
    space in them is ignored, `\\s` matches white space.
    """
    ways = tuple(FilteredPattern(way, re.VERBOSE) for way in alternatives)
    return Rule(kind, level, description, anchors, ways, speech, in_line)


def one_of_words(words: str) -> str:
    """An alternation of the words in a text separated by spaces; `_` is a space within a word."""
    return f"(?:{'|'.join(re.escape(word).replace('_', '[ _-]') for word in words.split())})"


def split_anchors(text: str) -> tuple[str, ...]:
    """The anchors in a text separated by `|`."""
    return tuple(text.split("|"))
