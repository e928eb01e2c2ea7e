"""What a rule of the scanner is.

Patterns match lower-cased text. Bounded repeats keep the time linear, and a rule runs only where
one of its anchors occurs at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Rule:
    """One pattern; a text without any of its anchors cannot match.

    `speech` marks words to a reader: a fenced block or quotes only mention them. `in_line`: what
    it matches stands in one line of the text as the scanner reads it, where a paragraph is one.
    """

    kind: str
    level: int
    description: str
    anchors: tuple[str, ...]
    regex: str
    speech: bool
    in_line: bool

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The pattern, compiled when it is first needed: all of them take a tenth of a second."""
        return re.compile(self.regex, re.VERBOSE)


def make_rule(
    kind: str,
    level: int,
    description: str,
    anchors: tuple[str, ...],
    *alternatives: str,
    speech: bool = False,
    in_line: bool = False,
) -> Rule:
    """A rule that any of several ways of writing the same thing matches.

    Each way is a verbose regular expression: whitespace in it means nothing, `\\s` does.
    """
    regex = "|".join(f"(?:{way})" for way in alternatives)
    return Rule(kind, level, description, anchors, regex, speech, in_line)


def one_of_words(words: str) -> str:
    """An alternation of words parted by whitespace; `_` stands for a space within one."""
    return f"(?:{'|'.join(re.escape(word).replace('_', '[ _-]') for word in words.split())})"


def split_anchors(text: str) -> tuple[str, ...]:
    """Anchors, which are parted by `|` here."""
    return tuple(text.split("|"))
