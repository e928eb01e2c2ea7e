"""Detects the language of a skill's prose from the scripts of its letters."""

from __future__ import annotations

import re

_CHINESE = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_LATIN_WORD = re.compile(r"[A-Za-z\u00c0-\u024f]+")
_OTHER = re.compile(r"[\u0370-\u1fff\u3040-\u30ff\uac00-\ud7af]")

# Characters of an average Chinese word.
_CHINESE_WORD = 1.5
# Letters of an average word in other scripts.
_OTHER_WORD = 5
_MOSTLY = 0.5
_HARDLY = 0.08
"""Share of Chinese words from which a text is `zh`, and below which it is `en`."""


def detect_language(text: str) -> str:
    """Return the language of a prose text: `en`, `zh`, `mixed` (both) or `other`.

    Shares are counted in words; a Chinese word counts as 1.5 characters. Chinese technical prose is
    full of English names, so a text is `zh` if at least half of its words are Chinese; below 8% it
    is `en`. A text is `other` if another script (Cyrillic, Arabic, kana, Hangul, ...) outweighs
    half of the Latin words and half of the Chinese characters. Languages in Latin letters are not
    distinguished: they count as `en`, as does a text without letters.
    """
    if text.isascii():
        return "en"
    characters, other = len(_CHINESE.findall(text)), len(_OTHER.findall(text))
    if not characters and not other:
        return "en"
    latin = len(_LATIN_WORD.findall(text))
    if other > characters / 2 and other / _OTHER_WORD > latin / 2:
        return "other"
    chinese = characters / _CHINESE_WORD
    total = chinese + latin
    if total == 0 or chinese / total < _HARDLY:
        return "en"
    return "zh" if chinese / total >= _MOSTLY else "mixed"
