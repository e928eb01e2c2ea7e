"""Tests which of many words a text may contain, for all words at once.

Searching for each of a thousand words would take longer than the rest of the scan. Instead, all
groups of three bytes in the text are entered in a hash table; a word with a missing group cannot
occur.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

_TABLE = 1 << 16
_GROUP = 3


class AnchorIndex:
    """A set of words to test texts for."""

    def __init__(self, words: Iterable[str]) -> None:
        self._words = sorted(set(words))
        groups = [_hash_buckets(word) for word in self._words]
        self._groups = np.concatenate(groups)
        self._starts = np.cumsum([0, *map(len, groups[:-1])])

    def find_in(self, text: str) -> frozenset[str]:
        """The words whose byte groups all occur in the text: its words, and rarely others."""
        table = np.zeros(_TABLE, bool)
        table[_hash_buckets(text)] = True
        found = np.logical_and.reduceat(table[self._groups], self._starts)
        return frozenset(self._words[place] for place in np.flatnonzero(found))


def _hash_buckets(text: str) -> npt.NDArray[np.uint32]:
    """Hash buckets of the byte groups in a text, and bucket 0, which is always set, so that a word
    shorter than a group is reported for every text."""
    content = np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8).astype(np.uint32)
    if len(content) < _GROUP:
        return np.zeros(1, np.uint32)
    mixed = (content[:-2] * 31 + content[1:-1]) * 61 + content[2:]
    return np.asarray(np.append(mixed & (_TABLE - 1), 0).astype(np.uint32))
