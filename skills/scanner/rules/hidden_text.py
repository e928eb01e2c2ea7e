"""Finds invisible characters and letters of another alphabet, which people do not see."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from skills.scanner.character_folding import (
    BIDI,
    HOMOGLYPHS,
    MIXED_ALPHABET_WORD,
    SELECTORS,
    TAGS,
    ZERO_WIDTH,
)

_NOTABLE = re.compile(f"[{TAGS}{SELECTORS}{BIDI}{ZERO_WIDTH}{HOMOGLYPHS}]|[\ufe00-\ufe0f]{{3}}")
"""What a line with any of these findings holds."""
_FLAG = re.compile("\U0001f3f4[\U000e0020-\U000e007e]{1,8}\U000e007f")
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_TAG_RUN = re.compile(f"[{TAGS}]+")
_DIRECTIONS = (
    (2, re.compile("[\u202d\u202e]"), "a character that reverses the direction of the text"),
    (1, re.compile("[\u202a-\u202c\u2066-\u2069]"), "direction marks without right-to-left text"),
)
_ZERO_WIDTHS = (
    (
        2,
        re.compile(f"[{ZERO_WIDTH}]{{4,}}"),
        "a run of zero-width characters, which can carry a message",
    ),
    (
        2,
        re.compile(f"(?<=[A-Za-z])[{ZERO_WIDTH}]+(?=[A-Za-z])"),
        "a zero-width character inside a word",
    ),
    (1, re.compile("[\u200b\u2060-\u2064\u180e\u3164\uffa0\ufeff]"), "a zero-width character"),
)
_SELECTOR_RUNS = (
    (
        3,
        re.compile(f"[{SELECTORS}]{{2,}}|[\ufe00-\ufe0f]{{3,}}"),
        "a run of variation selectors, which can carry a message",
    ),
)
_SUSPICIOUS_WORDS = 2


def find_hidden_characters(lines: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """(line, level, description) of invisible characters without a legitimate use.

    Legitimate are joiners in emoji and in scripts that need them, flags spelt with tag characters,
    a byte order mark at the start of the file, and direction marks in right-to-left text.
    """
    if all(map(str.isascii, lines)):
        return
    for number, line in enumerate(lines, start=1):
        if not line.isascii() and _NOTABLE.search(line):
            text = line.removeprefix("\ufeff") if number == 1 else line
            yield from ((number, level, what) for level, what in _find_in_line(text))


def _find_in_line(text: str) -> Iterator[tuple[int, str]]:
    tags = _TAG_RUN.search(_FLAG.sub("", text))
    if tags:
        spelt = "".join(chr(ord(c) - 0xE0000) for c in tags.group()[:40])
        yield 3, f"Unicode tag characters that spell {''.join(filter(str.isprintable, spelt))!r}"
    directions = () if _RIGHT_TO_LEFT.search(text) else _DIRECTIONS
    for kinds in (_SELECTOR_RUNS, directions, _ZERO_WIDTHS):
        found = ((level, what) for level, pattern, what in kinds if pattern.search(text))
        yield from islice(found, 1)
    mixed = len(set(MIXED_ALPHABET_WORD.findall(text)))
    if mixed:
        level = 2 if mixed >= _SUSPICIOUS_WORDS else 1
        yield level, "Cyrillic letters that look Latin within a Latin word"
