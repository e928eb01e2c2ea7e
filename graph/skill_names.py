"""Names of skills as they are compared: one normal form for catalog, mentions and linking."""

from __future__ import annotations

import re
import unicodedata

_SEPARATORS = re.compile(r"[\s_\-]+")
_WORDS = re.compile(r"[^\W\d_]+")


def normalise_name(name: str) -> str:
    """The form in which names are compared: NFKC, case-folded, separators as one hyphen."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return _SEPARATORS.sub("-", folded).strip("-")


def lookup_keys(name: str) -> tuple[str, ...]:
    """The normal forms under which a mentioned name may be found.

    A qualified name (`plugin:skill`, or a whole skill_id) is also looked up without its
    qualifier. Empty when nothing is left to compare.
    """
    whole = normalise_name(name)
    bare = whole.rpartition(":")[2].strip("-")
    return tuple(key for key in dict.fromkeys((whole, bare)) if key)


def is_name_variant(one: str, other: str) -> bool:
    """Whether two names are one but for a version or a qualifier."""
    first, second = set(_WORDS.findall(one.casefold())), set(_WORDS.findall(other.casefold()))
    return first <= second or second <= first


def may_be_same_skill(one: str, other: str) -> bool:
    """Whether two names may stand for one skill: variants, or a name and quite another.

    Names that share some words and differ in others, each its own, tell siblings apart.
    """
    first, second = set(_WORDS.findall(one.casefold())), set(_WORDS.findall(other.casefold()))
    return first <= second or second <= first or not first & second
