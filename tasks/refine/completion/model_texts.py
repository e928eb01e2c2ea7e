"""Short texts that a language model wrote about a skill: cleaned, bounded, and checked.

The model read untrusted text. Its own texts are shown and searched, so a text is dropped if it has
markup, an address, an order to a model, or a suspicious finding of the scanner.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from search.text.tokens import tokenize
from skills.scanner import scan_lines
from tasks.language_model.frame import clean
from tasks.language_model.prompt_injection import find_prompt_injection

SUSPICIOUS_LEVEL = 2
"""Minimum level of a finding of the scanner for which a text is dropped."""

_MARKUP = re.compile(r"https?:|www\.|```|~~~|\]\(|<[a-zA-Z/!|]|[{}]{2}", re.IGNORECASE)
_ENDS = " \t-*•·\"'“”「」,;，；、"


def clean_text(text: str, max_characters: int) -> str:
    """Return a text on one line without list marks and quotes; "" if it must not be kept."""
    shown = clean(text)
    if _MARKUP.search(shown):
        return ""
    plain = shown.replace("`", "").strip(_ENDS)
    if not plain or len(plain) > max_characters:
        return ""
    if any(finding.level >= SUSPICIOUS_LEVEL for finding in scan_lines((plain,), 1)):
        return ""
    if find_prompt_injection(plain):
        return ""
    return plain


def clean_texts(texts: Iterable[str], max_texts: int, max_characters: int) -> tuple[str, ...]:
    """Return the texts that may be kept, each once, at most `max_texts`."""
    kept: dict[tuple[str, ...], str] = {}
    for text in texts:
        plain = clean_text(text, max_characters)
        if plain and (terms := tuple(tokenize(plain))):
            kept.setdefault(terms, plain)
    return tuple(kept.values())[:max_texts]


def are_alike(left: Iterable[str], right: Iterable[str], share: float) -> bool:
    """Return whether two texts, as index terms, have at least this share of their terms in
    common."""
    first, second = set(left), set(right)
    both = len(first | second)
    return bool(both) and len(first & second) / both >= share
