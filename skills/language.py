"""Which language a skill's prose is written in, from the scripts of its letters."""

from __future__ import annotations

import re

_CHINESE = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_LATIN_WORD = re.compile(r"[A-Za-z\u00c0-\u024f]+")
_OTHER = re.compile(r"[\u0370-\u1fff\u3040-\u30ff\uac00-\ud7af]")

# A Chinese character carries about as much as one and a half characters of an English word.
_CHINESE_WORTH = 1.5
_MOSTLY = 0.5
_HARDLY = 0.08


def detect(text: str) -> str:
    """The language of a prose text: `en`, `zh`, `mixed` (both) or `other`.

    Chinese is measured against Latin words, one character counting as 1.5 words would be too
    many: the shares are of words, a Chinese word taken as 1.5 characters. Chinese technical
    prose is full of English names, so half of the words being Chinese makes a text `zh`. A text
    whose letters are mostly of another script (Cyrillic, Arabic, kana, Hangul, ...) is `other`;
    languages in Latin letters are not told apart and read as `en`. A text without letters is
    `en`.
    """
    chinese = len(_CHINESE.findall(text)) / _CHINESE_WORTH
    latin = len(_LATIN_WORD.findall(text))
    other = len(_OTHER.findall(text))
    if other > chinese * _CHINESE_WORTH / 2 and other / 5 > latin / 2:
        return "other"
    total = chinese + latin
    if total == 0 or chinese / total < _HARDLY:
        return "en"
    return "zh" if chinese / total >= _MOSTLY else "mixed"
