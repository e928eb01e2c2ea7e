"""Unicode normalisation in linear time, for text from anywhere.

Python sorts the combining marks after a character by insertion: a million of them take minutes, in
which no other thread runs. No language has more than a few.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

MAX_MARKS = 30
"""Combining marks of a character that are kept, as in the Stream-Safe Text Format (UAX #15)."""

_POSSIBLE_MARKS = re.compile(rf"[^\w\s\x00-\x7f]{{{MAX_MARKS + 1},}}")


def normalize(form: Literal["NFC", "NFKC", "NFKD"], text: str) -> str:
    """Return a normal form of a text, without the marks of a character after the first
    MAX_MARKS."""
    return unicodedata.normalize(form, _POSSIBLE_MARKS.sub(_limit_marks, text))


def _limit_marks(run: re.Match[str]) -> str:
    kept: list[str] = []
    marks = 0
    for character in run[0]:
        marks = marks + 1 if unicodedata.combining(character) else 0
        if marks <= MAX_MARKS:
            kept.append(character)
    return "".join(kept)
