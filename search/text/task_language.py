"""Language of a task, as far as ranking treats it in its own way."""

from __future__ import annotations

import re

from search.text.function_words import count_function_words

_KANA, _HANGUL = re.compile("[\u3040-\u30ff]"), re.compile("[\uac00-\ud7af]")
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_LATIN_WORD = re.compile("[A-Za-z\u00c0-\u024f]+")

_MIN_PART = 0.25
"""Share of kana or Hangul among the East Asian characters from which a text is Japanese or Korean:
a Chinese text may have a の in a name."""

_CHARACTERS_PER_WORD = 2


def detect_east_asian_language(text: str) -> str:
    """Return `ja`, `ko` or `zh` by the East Asian characters of a text, "" without any."""
    kana, hangul, han = (len(one.findall(text)) for one in (_KANA, _HANGUL, _HAN))
    total = kana + hangul + han
    if not total:
        return ""
    if max(kana, hangul) < _MIN_PART * total:
        return "zh"
    return "ja" if kana >= hangul else "ko"


def detect_task_language(text: str) -> str:
    """Return the code of the language of a task.

    That is the one of most of its function words, or `ja`, `ko` or `zh` if its East Asian
    characters outweigh the Latin words; "" for English, and for languages without function words
    here.
    """
    characters = sum(len(one.findall(text)) for one in (_KANA, _HANGUL, _HAN))
    if characters > _CHARACTERS_PER_WORD * len(_LATIN_WORD.findall(text)):
        return detect_east_asian_language(text)
    counts = count_function_words(text)
    return counts.most_common(1)[0][0] if counts else ""
