"""Normalisation and comparison of skill names, for catalog, mentions and linking."""

from __future__ import annotations

import re

from skills.unicode_normalization import normalize

_SEPARATORS = re.compile(r"[\s_\-]+")
_WORDS = re.compile(r"[^\W\d_]+")


def normalise_name(name: str) -> str:
    """Normalise a name: NFKC, case-folded, runs of separators replaced by one hyphen."""
    # Case folding may take letters apart: it is not closed under NFKC.
    folded = normalize("NFKC", normalize("NFKC", name).casefold())
    return _SEPARATORS.sub("-", folded).strip("-")


def lookup_keys(name: str) -> tuple[str, ...]:
    """Return the normal forms by which a mentioned name is looked up.

    A qualified name (`plugin:skill`, or a skill_id) is also looked up without its qualifier. Empty
    for a name that has only separators.
    """
    whole = normalise_name(name)
    bare = whole.rpartition(":")[2].strip("-")
    return tuple(key for key in dict.fromkeys((whole, bare)) if key)


def is_name_variant(one: str, other: str) -> bool:
    """Return whether two names differ only in a version or a qualifier."""
    first, second = _words(one), _words(other)
    return first <= second or second <= first


def may_be_same_skill(one: str, other: str) -> bool:
    """Return whether two names may denote one skill: variants, or names without a common word.

    If names share words and each has further words, they denote siblings.
    """
    return is_name_variant(one, other) or _words(one).isdisjoint(_words(other))


def _words(name: str) -> set[str]:
    return set(_WORDS.findall(name.casefold()))
