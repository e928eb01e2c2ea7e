"""Tokenizer: text to the index terms that every engine indexes, and stable hashes of terms.

Engines get the terms separated by spaces and only split them, so that both deployments rank
alike. Tokens consist of letters and digits only, so that none can act as a query operator.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import chain

import numpy as np
import Stemmer

from search.protocol import TermIds
from search.text.simplified_chinese import to_simplified
from skills.unicode_normalization import normalize

MIN_TOKEN_LENGTH, MAX_TOKEN_LENGTH = 2, 40
"""Tokens outside these lengths are dropped; single Chinese characters are the exception."""

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0002fa1f"
MARKS = "".join(
    mark for mark in map(chr, range(0x0900, 0x0E00)) if unicodedata.category(mark)[0] == "M"
)
"""Vowel signs and the like of the scripts from Devanagari to Sinhala, which separate words by
spaces. They are parts of words, though not letters by `\\w`."""
_WORDS = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+(?:[{MARKS}][^\W_{_CJK}]*)*")
_ASCII_WORDS = re.compile(r"[A-Za-z0-9]+")
"""The same as _WORDS for ASCII texts, and much faster."""
_PARTS = re.compile(r"[A-Z]+(?![^\W\d_A-Z])|[A-Z]?[^\W\d_A-Z]+|[0-9]+")
_LETTERS_AND_DIGITS = re.compile(r"[A-Za-z][0-9]|[0-9][A-Za-z]|[a-z][A-Z]|[A-Z]{2}[a-z]")
_IS_CJK = re.compile(rf"[{_CJK}]")
_SIGNED = re.compile(r"(?<!\w)([CcFf])(\+\+|#)(?![A-Za-z_+#])")
_SPELLED = {"++": "pp", "#": "sharp"}
_INITIALS = re.compile(r"[/&](?<=(?<![^\W_])[A-Za-z].)(?=[A-Za-z](?![^\W_]))")
"""Marks between single letters, as in A/B, I/O, Q&A."""
_LETTER_AND_WORD = re.compile(r"-(?<=(?<![^\W_])[A-Za-z]-)(?=([^\W\d_]{2,}))")
"""Hyphens after a single letter, as in e-mail, k-means."""

_TURKISH = str.maketrans("İı", "Ii")
"""Turkish letters i; Python's lower case of İ is an i with a combining dot."""

_STOP_WORDS = """
a about above after again against all also am an and any are aren as at be because been before
being below between both but by can cannot could couldn did didn do does doesn doing don down
during each either else etc ever every few for from further get gets given got had hadn has
hasn have haven having he her here hers herself him himself his how however i if in into is
isn it its itself just let ll may me might more most must my myself need needs neither no nor
not now of off on once one only or other our ours ourselves out over own per please re s same
shall she should shouldn so some such t than that the their theirs them themselves then there
these they this those through thus to too under until up upon us use used uses using ve very
via want was wasn we were weren what when where whether which while who whom whose why will
with within without won would wouldn yes yet you your yours yourself yourselves
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())

_stemmer = Stemmer.Stemmer("english")
_stemmer_lock = threading.Lock()


def is_cjk(token: str) -> bool:
    """Return whether a token begins with a Chinese, Japanese or Korean character."""
    return _IS_CJK.match(token) is not None


def _term(word: str) -> str | None:
    """Return the index term of a lowercase word; None for stop words and excluded lengths."""
    if not MIN_TOKEN_LENGTH <= len(word) <= MAX_TOKEN_LENGTH or word in STOP_WORDS:
        return None
    with _stemmer_lock:  # the stemmer is not thread-safe
        return str(_stemmer.stemWord(word))


def _split_word(word: str) -> tuple[str, ...]:
    if is_cjk(word):
        if len(word) == 1:
            return (word,)
        return tuple(word[i : i + 2] for i in range(len(word) - 1))
    terms = [_term(word.lower())]
    if _LETTERS_AND_DIGITS.search(word):
        terms.extend(_term(part.lower()) for part in _PARTS.findall(word))
    return tuple(term for term in dict.fromkeys(terms) if term)


_split_known_word = lru_cache(maxsize=1 << 16)(_split_word)


def tokenize(text: str) -> list[str]:
    """Return the index terms of a text in reading order.

    Words are runs of letters and digits, with the vowel signs of Indic scripts, lowercased and
    stemmed (Snowball English). A word with a change of case, or between letters and digits, yields
    the whole word and its parts, as does a letter with a hyphen (`e-mail`: `email`, `mail`). Stop
    words and words outside 2-40 characters are dropped; C++, C# and F# become `cpp`, `csharp` and
    `fsharp`, A/B and Q&A become `ab` and `qa`. Runs of Chinese, Japanese or Korean become character
    bigrams, with traditional characters replaced by simplified ones.
    """
    words = _ASCII_WORDS
    if not text.isascii():
        text = normalize("NFKC", text).translate(_TURKISH)
        if _IS_CJK.search(text):
            text = to_simplified(text)
        words = _WORDS
    if "#" in text or "++" in text:
        text = _SIGNED.sub(_spelled, text)
    text = _LETTER_AND_WORD.sub(_join, _INITIALS.sub("", text))
    # Runs of Chinese and long words seldom recur; a cache would keep whole texts.
    split = (
        _split_known_word(word)
        if len(word) <= MAX_TOKEN_LENGTH and word[0] < _CJK[0]
        else _split_word(word)
        for word in words.findall(text)
    )
    return list(chain.from_iterable(split))


def _spelled(match: re.Match[str]) -> str:
    return match.group(1) + _SPELLED[match.group(2)]


def _join(hyphen: re.Match[str]) -> str:
    return f"{hyphen[1].lower()} "


def word_count(tokens: Sequence[str]) -> float:
    """Return the number of words of a token stream; a Chinese bigram counts as half a word."""
    if "".join(tokens).isascii():
        return float(len(tokens))
    return sum(0.5 if ord(token[0]) > 0x2E7F and is_cjk(token) else 1.0 for token in tokens)


@lru_cache(maxsize=1 << 17)
def term_id(token: str) -> int:
    """Return a stable hash of a token, of 63 bits so that it fits a signed integer column."""
    digest = blake2b(token.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def term_ids(tokens: Iterable[str]) -> TermIds:
    """Return `term_id` of each token, in order, uint64."""
    return np.fromiter(map(term_id, tokens), dtype=np.uint64)


def bigram_ids(ids: TermIds) -> TermIds:
    """Return stable hashes of adjacent pairs of term ids, uint64 (max(len - 1, 0),)."""
    if len(ids) < 2:
        return np.empty(0, dtype=np.uint64)
    left, right = ids[:-1], ids[1:]
    mixed = left * np.uint64(0x9E3779B97F4A7C15) ^ (right * np.uint64(0xC2B2AE3D27D4EB4F))
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    return mixed >> np.uint64(1)
