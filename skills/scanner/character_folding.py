"""Removes invisible characters and replaces homoglyphs of Latin letters."""

from __future__ import annotations

import re

TAGS = "\U000e0000-\U000e007f"
BIDI = "\u202a-\u202e\u2066-\u2069"
ZERO_WIDTH = "\u180e\u200b-\u200d\u2060-\u2064\ufeff\u3164\uffa0"
SELECTORS = "\U000e0100-\U000e01ef"
_INVISIBLE = re.compile(f"[{TAGS}{BIDI}{ZERO_WIDTH}{SELECTORS}\u200e\u200f\u00ad]+")

HOMOGLYPHS = "аеорсухіјѕһԁԛԝАВЕКМНОРСТХІЈЅ"
_HOMOGLYPH = re.compile(f"[{HOMOGLYPHS}]")
_TO_LATIN = str.maketrans(HOMOGLYPHS, "aeopcyxijshdqwABEKMHOPCTXIJS")
MIXED_ALPHABET_WORD = re.compile(
    rf"\b(?=[a-zA-Z{HOMOGLYPHS}]*[{HOMOGLYPHS}])(?=[{HOMOGLYPHS}]*[a-zA-Z])"
    rf"[a-zA-Z{HOMOGLYPHS}]{{3,60}}\b"
)


def fold_homoglyphs(line: str) -> str:
    """The line with homoglyphs replaced by Latin letters in words that mix alphabets."""
    if not _HOMOGLYPH.search(line):
        return line
    return MIXED_ALPHABET_WORD.sub(lambda word: word[0].translate(_TO_LATIN), line)


def strip_invisible(line: str) -> str:
    """The line without invisible characters."""
    return _INVISIBLE.sub("", line)
