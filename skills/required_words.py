"""Words without which a regular expression cannot match, derived from the expression itself.

A search for a few words takes a fraction of the time of a search by a pattern with many
alternatives, and in most texts it settles that there is no match.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

Choice = tuple[str, ...]
"""Words of which each match holds one. Each white-space character in them is a space."""

_MAX_WORDS = 32
"""Texts of a part that are combined with those of the part after it."""

_MAX_CHOICE = 48
"""Words of a choice; a longer one costs more than it spares."""

_parse: Callable[[str, int], Any] = import_module("re._parser").parse
"""The parser of the standard library. Its tree is not a public interface; a test compares the words
of every pattern with texts that the pattern matches."""


def find_required_words(regex: str, flags: int = 0) -> tuple[Choice, ...]:
    """Choices of words: each match of the expression holds a word of every choice.

    The words are in what the match consumes, not in what it only looks at. They hold for a text
    whose white-space characters were replaced by spaces (`replace_white_space`); those of an
    expression that ignores case, for such a text in ASCII and lower case.
    """
    choices = _all_choices(*_walk(_parse(regex, flags)))
    if flags & re.IGNORECASE:
        choices = [_lower(choice) for choice in choices if not any(map(_has_odd_case, choice))]
    return tuple(sorted(map(_drop_longer, choices), key=lambda choice: (len(choice), choice)))


def _has_odd_case(word: str) -> bool:
    """Whether a word has cased letters beyond ASCII, some of which match letters of ASCII."""
    return any(not char.isascii() and char.lower() != char.upper() for char in word)


_ODD_SPACES = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
    "\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
"""What `\\s` matches, apart from the space; the ASCII ones first."""
_ASCII_SPACES = sum(map(str.isascii, _ODD_SPACES))


def replace_white_space(text: str) -> str:
    """The text with a space for each white-space character, of the same length."""
    odd = _ODD_SPACES[:_ASCII_SPACES] if text.isascii() else _ODD_SPACES
    for char in odd:  # most texts lack most of them: faster than a pattern for all
        text = text.replace(char, " ")
    return text


Words = frozenset[str]


def _all_choices(exact: Words | None, choices: list[Words]) -> list[Words]:
    """The choices of a part: those found in it, or all texts that it matches."""
    return choices if exact is None else [exact] if _is_telling(exact) else []


def _is_telling(words: Words) -> bool:
    """Whether most texts lack all of the words: they are few, and none is a letter or a space."""
    if len(words) > _MAX_CHOICE and len(_drop_longer(words)) > _MAX_CHOICE:
        return False
    return not any(_is_letter(word.strip()) for word in words)


def _lower(words: Words) -> Words:
    return frozenset(word.lower() for word in words)


def _is_letter(word: str) -> bool:
    return len(word) < 2 and (not word or (word.isascii() and word.isalnum()))


def _drop_longer(words: Words) -> Choice:
    """The words without those that contain another."""
    kept = [word for word in words if not any(one != word and one in word for one in words)]
    return tuple(sorted(kept, key=lambda word: (len(word), word)))


def _walk(sequence: Iterable[tuple[Any, Any]]) -> tuple[Words | None, list[Words]]:
    """The texts that a sequence matches, None if they are too many, and choices of words in it."""
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
    """The texts that a part matches, choices of words in it, and whether it may be repeated."""
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
    """The characters of a short set; the class of white space is a space."""
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
    """Of alternatives: their texts, or the most telling choice of each, as one choice."""
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


def _repeat(least: int, most: int, body: Any) -> tuple[Words | None, list[Words], bool]:
    exact, choices = _walk(body)
    if least == 0:
        optional = most == 1 and exact is not None
        return (exact | {""} if exact is not None and optional else None), [], False
    return exact, choices, most > 1
