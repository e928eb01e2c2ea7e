"""Finds which of many patterns a text may match, for all patterns at once.

Searching for each of three thousand words would take longer than the rest of the scan. Instead, all
groups of three bytes in the text are entered in a hash table; a word with a missing group cannot
occur, and a pattern whose anchors or required words cannot occur need not be searched for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from skills.filtered_pattern import FilteredPattern
from skills.required_words import Choice

_TABLE = 1 << 16
_GROUP = 3

_Flags = npt.NDArray[np.bool_]


class Searched(Protocol):
    """A pattern of alternatives, which matches no text without any of its anchors."""

    @property
    def anchors(self) -> tuple[str, ...]: ...

    @property
    def ways(self) -> tuple[FilteredPattern, ...]: ...


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pattern that a text may match: its anchors and alternatives that may occur in the text.

    ways: each alternative with its required words that may occur.
    """

    anchors: tuple[str, ...]
    ways: tuple[tuple[FilteredPattern, tuple[Choice, ...]], ...]

    def find_matches(
        self, folded: str, spaced: str, start: int, end: int
    ) -> Iterator[re.Match[str]]:
        """Matches in folded[start:end], as `finditer` of the whole alternation gives them: of those
        that begin at one place, the first alternative's; none overlaps another.

        spaced: the text with spaces for its white space.
        """
        holds = spaced[start:end].__contains__
        patterns = [
            way.pattern
            for way, choices in self.ways
            if all(any(map(holds, choice)) for choice in choices)
        ]
        found = [pattern.search(folded, start, end) for pattern in patterns]
        while first := min(filter(None, found), key=re.Match.start, default=None):
            yield first
            done = first.end()
            found = [
                pattern.search(folded, done, end) if match and match.start() < done else match
                for pattern, match in zip(patterns, found, strict=True)
            ]


_Pattern = TypeVar("_Pattern", bound=Searched)


class PatternIndex(Generic[_Pattern]):
    """Patterns to test texts for."""

    def __init__(self, patterns: Sequence[_Pattern]) -> None:
        self._patterns = patterns
        self._ways = [(number, way) for number, one in enumerate(patterns) for way in one.ways]
        anchors = [one.anchors for one in patterns]
        # An alternative without required words may be in every text, as the empty word is.
        choices = [way.choices or (("",),) for _, way in self._ways]
        flat = [choice for several in choices for choice in several]
        words = sorted({word for one in (*anchors, *flat) for word in one})
        places = {word: place for place, word in enumerate(words)}
        self._groups = _Rows([_hash_buckets(word) for word in words])
        self._anchors, self._choices = _WordRows(anchors, places), _WordRows(flat, places)
        self._pattern_of = np.array([number for number, _ in self._ways])
        self._way_of = np.repeat(np.arange(len(choices)), [*map(len, choices)])
        self._way_numbers = self._way_of.tolist()

    def find_in(self, spaced: str) -> Mapping[_Pattern, Candidate]:
        """The patterns that a text may match; rarely others. White space in it must be spaces
        (`replace_white_space`)."""
        table = np.zeros(_TABLE, np.bool_)
        table[_hash_buckets(spaced)] = True
        words = self._groups.all(table)
        anchored = self._anchors.any(words)
        possible = anchored[self._pattern_of]
        possible[self._way_of[~self._choices.any(words)]] = False
        found = np.zeros(len(anchored), np.bool_)
        found[self._pattern_of[possible]] = True
        ways = self._list_ways(words, possible)
        return {
            self._patterns[number]: Candidate(anchors, tuple(ways[number]))
            for number, anchors in self._anchors.list_words(words, found)
        }

    def _list_ways(
        self, words: _Flags, possible: _Flags
    ) -> dict[int, list[tuple[FilteredPattern, tuple[Choice, ...]]]]:
        """The possible alternatives with their words that the text may hold, by pattern."""
        choices: dict[int, list[Choice]] = {}
        for row, choice in self._choices.list_words(words, possible[self._way_of]):
            choices.setdefault(self._way_numbers[row], []).append(choice)
        found: dict[int, list[tuple[FilteredPattern, tuple[Choice, ...]]]] = {}
        for place, several in choices.items():
            number, way = self._ways[place]
            found.setdefault(number, []).append((way, tuple(several)))
        return found


class _Rows:
    """Rows of indices of different lengths, none empty."""

    def __init__(self, rows: Sequence[npt.NDArray[np.intp]]) -> None:
        self._flat = np.concatenate(rows)
        self._starts = np.cumsum([0, *map(len, rows[:-1])])

    def all(self, flags: _Flags) -> _Flags:
        """Whether the flags of all indices of a row are set, by row."""
        return np.asarray(np.logical_and.reduceat(flags[self._flat], self._starts))

    def any(self, flags: _Flags) -> _Flags:
        """Whether the flag of any index of a row is set, by row."""
        return np.asarray(np.logical_or.reduceat(flags[self._flat], self._starts))


class _WordRows(_Rows):
    """Rows of words, by their places in a list of words."""

    def __init__(self, rows: Sequence[Choice], places: Mapping[str, int]) -> None:
        super().__init__([np.array([places[word] for word in row]) for row in rows])
        self._words = np.array([word for row in rows for word in row], np.object_)
        self._row_of = np.repeat(np.arange(len(rows)), [*map(len, rows)])

    def list_words(self, flags: _Flags, wanted: _Flags) -> Iterator[tuple[int, Choice]]:
        """(row, its words with a flag) of each wanted row with such words, in order."""
        kept = np.flatnonzero(flags[self._flat] & wanted[self._row_of])
        words, rows = self._words[kept].tolist(), self._row_of[kept]
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        ends = [*starts[1:].tolist(), len(words)]
        for row, start, end in zip(rows[starts].tolist(), starts.tolist(), ends, strict=True):
            yield row, tuple(words[start:end])


def _hash_buckets(text: str) -> npt.NDArray[np.intp]:
    """Hash buckets of the byte groups in a text, and bucket 0, which is always set, so that a word
    shorter than a group is reported for every text."""
    content = np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8).astype(np.uint32)
    if len(content) < _GROUP:
        return np.zeros(1, np.intp)
    mixed = (content[:-2] * 31 + content[1:-1]) * 61 + content[2:]
    return np.append(mixed & (_TABLE - 1), 0).astype(np.intp)
