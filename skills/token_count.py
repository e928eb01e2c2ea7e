"""Estimate of a text's language-model tokens, without a model."""

from __future__ import annotations

import re

CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
"""Character ranges of Chinese, Japanese and Korean letters, for use inside `[...]`."""

_TOKEN = re.compile(
    rf"[A-Za-z]{{1,6}}|[0-9]{{1,2}}|[{CJK}]|[^\W\d_A-Za-z{CJK}]{{1,2}}|[^\sA-Za-z0-9]"
)

_ASCII_TOKEN = re.compile(r"[A-Za-z]{1,6}|[0-9]{1,2}|[^\sA-Za-z0-9]")
"""Equivalent of _TOKEN for ASCII texts, which is faster."""


def count_tokens(text: str) -> int:
    """Estimate the tokens of a text; additive over its whitespace-separated parts.

    A token is up to six Latin letters in a run, up to two digits, one CJK letter or punctuation
    mark, or up to two letters of another script. Thus an unbroken run (base64, a hash) counts by
    its length.

    Calibrated against MiniLM's WordPiece vocabulary on 400 published skill files: the estimate is
    1.05 times the true count in total, and between 0.95 and 1.20 times for nine files of ten.
    """
    return len((_ASCII_TOKEN if text.isascii() else _TOKEN).findall(text))
