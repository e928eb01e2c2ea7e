"""Tells at once which of the words that rules look for a text cannot hold.

To search for each of a thousand words would take most of the time of a scan. Instead the groups of
three bytes of the text are entered in a table, and a word with a missing group is ruled out.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from skills.filtered_pattern import FilteredPattern

_TABLE = 1 << 16
_GROUP = 3


class WordFilter:
    """The words that some patterns require, to look for in texts."""

    def __init__(self, ways: Iterable[FilteredPattern]) -> None:
        choices = {word for way in ways for choice in way.choices for word in choice}
        self._words = sorted(word for word in choices if len(word.encode()) >= _GROUP)
        self._short = frozenset(choices.difference(self._words))
        rows = [_hash_groups(word) for word in self._words]
        self._groups = np.concatenate(rows) if rows else np.zeros(0, np.intp)
        self._starts = np.cumsum([0, *map(len, rows[:-1])])

    def find_possible(self, spaced: str) -> frozenset[str]:
        """The words that a text with spaces for its white space may hold; rarely others."""
        table = np.zeros(_TABLE, bool)
        table[_hash_groups(spaced)] = True
        held = np.logical_and.reduceat(table[self._groups], self._starts)
        return self._short.union(self._words[place] for place in np.flatnonzero(held))


def _hash_groups(text: str) -> npt.NDArray[np.intp]:
    content = np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8).astype(np.intp)
    mixed = (content[:-2] * 31 + content[1:-1]) * 61 + content[2:]
    return np.asarray(mixed & (_TABLE - 1))


def may_match(way: FilteredPattern, possible: frozenset[str]) -> bool:
    """Whether a text of these possible words may hold a match of a pattern."""
    return not any(possible.isdisjoint(choice) for choice in way.choices)
