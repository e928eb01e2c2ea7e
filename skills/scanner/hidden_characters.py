"""Detection of invisible characters, and of letters that imitate Latin letters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_TAGS = "\U000e0000-\U000e007f"
_BIDI = "\u202a-\u202e\u2066-\u2069"
_ZERO_WIDTH = "\u180e\u200b-\u200d\u2060-\u2064\ufeff\u3164\uffa0"
_SELECTORS = "\U000e0100-\U000e01ef"
_OTHER = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200e\u200f\u2065-\u206f\ufe00-\ufe0f"
    "\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0080-\U000e00ff"
)
"""Further characters that Unicode calls ignorable."""
_INVISIBLE = re.compile(f"[{_TAGS}{_BIDI}{_ZERO_WIDTH}{_SELECTORS}{_OTHER}]+")
_HOMOGLYPHS = "аеорсухіјѕһԁԛԝАВЕКМНОРСТХІЈЅ"
_OTHER_HOMOGLYPHS = "αγιορτυχωΑΒΕΖΗΙΚΜΝΟΡΤΥΧıɑɡ"
"""Greek and other letters that are legitimate within a Latin word, as in formulas."""
HOMOGLYPHS = frozenset(_HOMOGLYPHS + _OTHER_HOMOGLYPHS)
_TO_LATIN = str.maketrans(
    _HOMOGLYPHS + _OTHER_HOMOGLYPHS, "aeopcyxijshdqwABEKMHOPCTXIJSayioptuxwABEZHIKMNOPTYXiga"
)
_WORD = re.compile(rf"[a-zA-Z{_HOMOGLYPHS}{_OTHER_HOMOGLYPHS}]+")
_MIXED_WORD = re.compile(
    rf"\b(?=[a-zA-Z{_HOMOGLYPHS}]*[{_HOMOGLYPHS}])(?=[{_HOMOGLYPHS}]*[a-zA-Z])"
    rf"[a-zA-Z{_HOMOGLYPHS}]{{3,60}}\b"
)
_NOTABLE = re.compile(
    f"[{_TAGS}{_SELECTORS}{_BIDI}{_ZERO_WIDTH}{_HOMOGLYPHS}]|[\ufe00-\ufe0f]{{3}}"
)
"""Pattern that matches in every line with a finding of this module."""
_FLAG = re.compile("\U0001f3f4[\U000e0020-\U000e007e]{1,8}\U000e007f")
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_TAG_RUN = re.compile(f"[{_TAGS}]+")
_MARKS = (
    (2, "[\u202d\u202e]", "a character that reverses the direction of the text"),
    (1, "[\u202a-\u202c\u2066-\u2069]", "direction marks without right-to-left text"),
    (3, f"[{_SELECTORS}]{{2,}}|[\ufe00-\ufe0f]{{3,}}", "variation selectors, which carry messages"),
    (2, f"[{_ZERO_WIDTH}]{{4,}}", "zero-width characters, which carry messages"),
    (2, f"(?<=[A-Za-z])[{_ZERO_WIDTH}]+(?=[A-Za-z])", "a zero-width character inside a word"),
    (1, "[\u200b\u2060-\u2064\u180e\u3164\uffa0\ufeff]", "a zero-width character"),
)
"""(level, pattern, description); the first two, direction marks, are legitimate in right-to-left
text."""


def fold_homoglyphs(text: str) -> str:
    """Replace homoglyphs by Latin letters in words that mix alphabets."""
    return _WORD.sub(_fold, text)


def _fold(word: re.Match[str]) -> str:
    is_mixed = any(map(str.isascii, word[0]))
    return word[0].translate(_TO_LATIN) if is_mixed else word[0]


def strip_invisible(text: str) -> str:
    """Return the text without invisible characters."""
    return _INVISIBLE.sub("", text)


def find_hidden_characters(lines: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Yield (line, level, description) of hidden characters without a legitimate use.

    Legitimate uses are joiners in emoji and in scripts that need them, flags spelt with tag
    characters, a byte order mark at the start of the file, and direction marks in right-to-left
    text.
    """
    if not _NOTABLE.search("\n".join(line for line in lines if not line.isascii())):
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
    marks = _MARKS[2:] if _RIGHT_TO_LEFT.search(text) else _MARKS
    yield from ((level, what) for level, pattern, what in marks if re.search(pattern, text))
    mixed = len(set(_MIXED_WORD.findall(text)))
    if mixed:
        yield min(mixed, 2), "Cyrillic letters that look Latin within a Latin word"
