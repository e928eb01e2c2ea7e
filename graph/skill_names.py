"""Normalisation and comparison of skill names, for catalog, mentions and linking."""

from __future__ import annotations

import re
import unicodedata

_SEPARATORS = re.compile(r"[\s_\-]+")
_WORDS = re.compile(r"[^\W\d_]+")


def normalise_name(name: str) -> str:
    """The normal form of a name: NFKC, case-folded, runs of separators as one hyphen."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return _SEPARATORS.sub("-", folded).strip("-")


def lookup_keys(name: str) -> tuple[str, ...]:
    """The normal forms under which a mentioned name may be found.

    A qualified name (`plugin:skill`, or a skill_id) is also looked up without its qualifier.
    Empty for a name of separators only.
    """
    whole = normalise_name(name)
    bare = whole.rpartition(":")[2].strip("-")
    return tuple(key for key in dict.fromkeys((whole, bare)) if key)


def is_name_variant(one: str, other: str) -> bool:
    """Whether two names differ in a version or a qualifier only."""
    first, second = _words(one), _words(other)
    return first <= second or second <= first


def may_be_same_skill(one: str, other: str) -> bool:
    """Whether two names may denote one skill: variants of one name, or names without a common word.

    Names that share words and both have others distinguish siblings.
    """
    first, second = _words(one), _words(other)
    return first <= second or second <= first or not first & second


def _words(name: str) -> set[str]:
    return set(_WORDS.findall(name.casefold()))
