"""Derives from a regular expression the words that every match contains.

A search for a few words takes a fraction of the time of a search by a pattern with many
alternatives, and for most texts it shows that there is no match.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

Choice = tuple[str, ...]
"""Words at least one of which is in every match; white-space characters are written as spaces."""

_MAX_WORDS = 32
"""Maximum texts of a sequence of parts; with more, the texts so far become a choice."""

_MAX_CHOICE = 48
"""Maximum words of a choice; a longer choice costs more time than it saves."""

_parse: Callable[[str, int], Any] = import_module("re._parser").parse
"""Parser of the standard library. Its tree is not a public interface, so a test compares the words
of every pattern with texts that the pattern matches."""


def find_required_words(regex: str, flags: int = 0) -> tuple[Choice, ...]:
    """Return choices of words: every match of the expression contains a word of each choice.

    The words are in the text that the match consumes, not in lookarounds. They apply to a text
    whose white-space characters were replaced by spaces (`replace_white_space`). For an expression
    that ignores case, the text must also be ASCII in lower case.
    """
    choices = _all_choices(*_walk(_parse(regex, flags)))
    if flags & re.IGNORECASE:
        choices = [_lower(choice) for choice in choices if not any(map(_has_odd_case, choice))]
    return tuple(sorted(map(_drop_longer, choices), key=lambda choice: (len(choice), choice)))


def find_width(regex: str, flags: int = 0) -> int:
    """Return the maximum characters of a match, without lookarounds."""
    return int(min(_parse(regex, flags).getwidth()[1], 1 << 32))


def _has_odd_case(word: str) -> bool:
    """Return whether a word has cased non-ASCII letters; some of these match ASCII letters."""
    return any(not char.isascii() and char.lower() != char.upper() for char in word)


_ODD_SPACES = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
    "\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
"""Characters that `\\s` matches, without the space; ASCII characters first."""
_ASCII_SPACES = sum(map(str.isascii, _ODD_SPACES))


def replace_white_space(text: str) -> str:
    """Replace each white-space character by a space; the length stays the same."""
    odd = _ODD_SPACES[:_ASCII_SPACES] if text.isascii() else _ODD_SPACES
    for char in odd:  # faster than one pattern, since most texts lack most of these characters
        text = text.replace(char, " ")
    return text


Words = frozenset[str]


def _all_choices(exact: Words | None, choices: list[Words]) -> list[Words]:
    """Return the choices of a part: those found in it, or its texts as one choice."""
    return choices if exact is None else [exact] if _is_telling(exact) else []


def _is_telling(words: Words) -> bool:
    """Return whether a choice is useful: few words, none of which is a single letter or a space."""
    if len(words) > _MAX_CHOICE and len(_drop_longer(words)) > _MAX_CHOICE:
        return False
    return not any(_is_letter(word.strip()) for word in words)


def _lower(words: Words) -> Words:
    return frozenset(word.lower() for word in words)


def _is_letter(word: str) -> bool:
    return len(word) < 2 and (not word or (word.isascii() and word.isalnum()))


def _drop_longer(words: Words) -> Choice:
    """Return the words that contain no other of the words."""
    kept = [word for word in words if not any(one != word and one in word for one in words)]
    return tuple(sorted(kept, key=lambda word: (len(word), word)))


def _walk(sequence: Iterable[tuple[Any, Any]]) -> tuple[Words | None, list[Words]]:
    """Return the texts that a sequence matches, None if too many, and choices of words in it."""
    run, whole = frozenset([""]), True
    choices: list[Words] = []

    def close(words: Words, following: Words) -> Words:
        nonlocal whole
        whole = False
        if _is_telling(words):
            choices.append(words)
        return following

    for name, value in sequence:
        exact, inner, repeats = _part(str(name), value)
        if exact is None:
            run = close(run, frozenset([""]))
            choices += inner
            continue
        joined = frozenset(first + second for first in run for second in exact)
        if len(joined) > _MAX_WORDS:
            run = close(run, exact)
        elif repeats:
            run = close(joined, exact)
        else:
            run = joined
    if whole:
        return run, []
    close(run, frozenset())
    return None, choices


def _part(name: str, value: Any) -> tuple[Words | None, list[Words], bool]:
    """Return the texts that a part matches, choices in it, and whether it may be repeated."""
    match name:
        case "LITERAL":
            return frozenset([replace_white_space(chr(value))]), [], False
        case "IN":
            return _characters(value), [], False
        case "AT" | "ASSERT" | "ASSERT_NOT":
            return frozenset([""]), [], False
        case "SUBPATTERN":
            return *_walk(value[-1]), False
        case "ATOMIC_GROUP":
            return *_walk(value), False
        case "BRANCH":
            return *_branch([_walk(way) for way in value[1]]), False
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            return _repeat(*value)
    return None, [], False


def _characters(members: list[tuple[Any, Any]]) -> Words | None:
    """Return the characters of a short set, None for other sets; `\\s` is a space."""
    found = set()
    for name, value in members:
        if str(name) == "LITERAL":
            found.add(replace_white_space(chr(value)))
        elif str(value) == "CATEGORY_SPACE":
            found.add(" ")
        else:
            return None
    return frozenset(found) if len(found) <= _MAX_WORDS else None


def _branch(ways: list[tuple[Words | None, list[Words]]]) -> tuple[Words | None, list[Words]]:
    """Return the texts of alternatives, or one choice of the best words of each alternative."""
    texts: Words = frozenset().union(*(exact or frozenset() for exact, _ in ways))
    if all(exact is not None for exact, _ in ways) and len(texts) <= 4 * _MAX_WORDS:
        return texts, []
    best: Words = frozenset()
    for exact, choices in ways:
        known = _all_choices(exact, choices)
        if not known:
            return None, []
        best |= max(known, key=lambda words: (min(map(len, words)), -len(words)))
    return None, [best] if _is_telling(best) else []


def _repeat(low: int, high: int, body: Any) -> tuple[Words | None, list[Words], bool]:
    exact, choices = _walk(body)
    if low == 0:
        optional = high == 1 and exact is not None
        return (exact | {""} if exact is not None and optional else None), [], False
    return exact, choices, high > 1
