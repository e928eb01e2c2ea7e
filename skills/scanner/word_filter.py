"""Tells quickly which words and patterns a text cannot hold.

The rules look for a thousand words. To search for each would take most of the time of a scan;
instead each word's groups of three characters are looked up among those of the text.
"""

from __future__ import annotations

from functools import cache

from skills.filtered_pattern import FilteredPattern
from skills.required_words import Choice

_Groups = frozenset[tuple[str, ...]]


@cache
def _find_groups(word: str) -> _Groups:
    """The groups of a word; none for a shorter word, which any text may hold."""
    return frozenset(zip(word, word[1:], word[2:], strict=False))


@cache
def _find_choices(way: FilteredPattern) -> tuple[tuple[_Groups, ...], ...]:
    return tuple(tuple(map(_find_groups, choice)) for choice in way.choices)


class WordFilter:
    """The groups of three characters of a text with spaces for its white space."""

    def __init__(self, spaced: str) -> None:
        self._groups = frozenset(zip(spaced, spaced[1:], spaced[2:], strict=False))

    def may_match(self, way: FilteredPattern) -> bool:
        """Whether the text may hold a match, by the words that each match holds."""
        groups = self._groups
        for choice in _find_choices(way):
            for word in choice:
                if word <= groups:
                    break
            else:
                return False
        return True

    def list_possible(self, words: Choice) -> list[str]:
        """The words that the text may hold."""
        return [word for word in words if _find_groups(word) <= self._groups]
