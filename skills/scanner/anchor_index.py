"""Which of many plain words a text can hold, found for all of them at once.

Looking for each of a thousand words by itself takes longer than all the rest of a scan. So the
groups of three bytes that a text has are marked in a table, and a word of which one group is
missing is not there.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

_TABLE = 1 << 16
_GROUP = 3


class AnchorIndex:
    """A set of words that texts are tried for."""

    def __init__(self, words: Iterable[str]) -> None:
        self._words = sorted(set(words))
        groups = [_places(word) for word in self._words]
        self._groups = np.concatenate(groups)
        self._starts = np.cumsum([0, *map(len, groups[:-1])])

    def find_in(self, text: str) -> frozenset[str]:
        """The words of which each group of bytes is in the text: all it holds, seldom others."""
        table = np.zeros(_TABLE, bool)
        table[_places(text)] = True
        found = np.logical_and.reduceat(table[self._groups], self._starts)
        return frozenset(self._words[place] for place in np.flatnonzero(found))


def _places(text: str) -> npt.NDArray[np.uint32]:
    """The table's places of the byte groups in a text, and place 0, which every table has marked,
    so that a word shorter than a group is held to be anywhere."""
    content = np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8).astype(np.uint32)
    if len(content) < _GROUP:
        return np.zeros(1, np.uint32)
    mixed = (content[:-2] * 31 + content[1:-1]) * 61 + content[2:]
    return np.asarray(np.append(mixed & (_TABLE - 1), 0).astype(np.uint32))
