"""Finds which of many patterns a text may match and where, for all patterns at once.

Searching for each of thousands of words would take longer than the rest of the scan. Instead, all
groups of three bytes in the text are entered in a hash table, with the parts of the text that have
them; a word with a missing group cannot occur, and a pattern need not be searched for in parts
without one of its anchors or of the words that it requires.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from skills.filtered_pattern import FilteredPattern
from skills.required_words import replace_white_space

MAX_PARTS = 64
"""Number of parts that a text is divided into, one bit each."""

ANYWHERE = (1 << MAX_PARTS) - 1
"""The bits of all parts."""

_TABLE = 1 << 16
_GROUP = 3
_MAX_GROUPS = 8
"""Groups of a long word that are looked up."""

_Masks = npt.NDArray[np.uint64]


class Searched(Protocol):
    """A pattern of alternatives, which matches no text without any of its anchors."""

    @property
    def anchors(self) -> tuple[str, ...]:
        """Words in lower case."""

    @property
    def ways(self) -> tuple[FilteredPattern, ...]:
        """The alternatives; none matches an empty text."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pattern that a text may match: its anchors, and alternatives that may match.

    ways: each with the parts in which it may, as bits.
    """

    anchors: tuple[str, ...]
    ways: tuple[tuple[FilteredPattern, int], ...]

    def list_parts(self) -> list[int]:
        """Numbers of the parts in which the pattern may match, ascending."""
        parts = 0
        for _, mask in self.ways:
            parts |= mask
        return [part for part in range(MAX_PARTS) if parts >> part & 1]

    def find_matches(
        self, folded: str, spaced: str, start: int, end: int, within: int = ANYWHERE
    ) -> Iterator[re.Match[str]]:
        """Matches in folded[start:end], as `finditer` of the whole alternation gives them: of those
        that begin at one place, the first alternative's; none overlaps another.

        spaced: the text with spaces for its white space. within: the parts that the range is in, as
        bits.
        """
        text = spaced[start:end]
        patterns = [way.pattern for way, mask in self.ways if mask & within and way.may_match(text)]
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
    """Patterns to test texts for. `spanning`: those whose matches may span several parts."""

    def __init__(
        self, patterns: Sequence[_Pattern], spanning: Collection[_Pattern] = frozenset()
    ) -> None:
        self._patterns = patterns
        self._ways = [(number, way) for number, one in enumerate(patterns) for way in one.ways]
        anchors = [tuple(map(replace_white_space, one.anchors)) for one in patterns]
        # An alternative without required words may be in every text, as the empty word is.
        choices = [way.choices or (("",),) for _, way in self._ways]
        flat = [choice for several in choices for choice in several]
        words = sorted({word for one in (*anchors, *flat) for word in one})
        places = {word: place for place, word in enumerate(words)}
        self._groups = _Rows([_choose_groups(word) for word in words])
        self._anchors = _Rows([[places[word] for word in one] for one in anchors])
        self._choices = _Rows([[places[word] for word in one] for one in flat])
        bounds = np.cumsum([0, *map(len, choices)]).tolist()
        self._of_way = _Rows([range(start, end) for start, end in pairwise(bounds)])
        self._pattern_of = np.array([number for number, _ in self._ways])
        spans = np.array([one in spanning for one in patterns])
        self._spanning = spans
        self._spanning_choices = np.repeat(spans[self._pattern_of], [*map(len, choices)])

    def find_in(self, spaced: str, starts: Sequence[int]) -> Mapping[_Pattern, Candidate]:
        """The patterns that a text may match, each alternative in the parts where it may; rarely
        others.

        spaced: the text with spaces for its white space. starts: offsets of its parts, the first 0,
        at most MAX_PARTS.
        """
        words = self._groups.all(_enter(spaced, starts))
        anchors, choices = self._anchors.any(words), self._choices.any(words)
        anchors[self._spanning & (anchors != 0)] = ANYWHERE
        choices[self._spanning_choices & (choices != 0)] = ANYWHERE
        masks = self._of_way.all(choices) & anchors[self._pattern_of]
        found: dict[int, list[tuple[FilteredPattern, int]]] = {}
        places = np.flatnonzero(masks)
        for place, mask in zip(places.tolist(), masks[places].tolist(), strict=True):
            number, way = self._ways[place]
            found.setdefault(number, []).append((way, mask))
        return {
            self._patterns[number]: Candidate(self._patterns[number].anchors, tuple(ways))
            for number, ways in found.items()
        }


class _Rows:
    """Rows of indices of different lengths, none empty."""

    def __init__(self, rows: Sequence[Sequence[int] | npt.NDArray[np.intp]]) -> None:
        self._flat = np.concatenate([np.asarray(row, np.intp) for row in rows])
        self._starts = np.cumsum([0, *map(len, rows[:-1])])

    def all(self, masks: _Masks) -> _Masks:
        """The bits that the masks of all indices of a row have, by row."""
        return np.asarray(np.bitwise_and.reduceat(masks[self._flat], self._starts))

    def any(self, masks: _Masks) -> _Masks:
        """The bits that the mask of any index of a row has, by row."""
        return np.asarray(np.bitwise_or.reduceat(masks[self._flat], self._starts))


def _enter(text: str, starts: Sequence[int]) -> _Masks:
    """The hash table of a text: for each bucket the parts that have a group of it, as bits. Each
    part has bucket 0."""
    parts = [_encode(text[start:end]) for start, end in pairwise([*starts, len(text)])]
    table = np.zeros(_TABLE, np.uint64)
    buckets = _hash_groups(b"".join(parts))
    bits = np.left_shift(np.uint64(1), np.arange(len(parts), dtype=np.uint64))
    np.bitwise_or.at(table, buckets, np.repeat(bits, [*map(len, parts)])[: len(buckets)])
    table[0] = ANYWHERE
    return table


def _choose_groups(word: str) -> npt.NDArray[np.intp]:
    """Buckets of some groups of a word, bucket 0 for a word shorter than a group."""
    buckets = _hash_groups(_encode(word))
    if not len(buckets):
        return np.zeros(1, np.intp)
    if len(buckets) <= _MAX_GROUPS:  # nearly all words
        return buckets
    chosen = np.linspace(0, len(buckets) - 1, _MAX_GROUPS).astype(np.intp)
    return np.asarray(buckets[chosen])


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _hash_groups(encoded: bytes) -> npt.NDArray[np.intp]:
    """The bucket of the group that begins at each byte, but for the last two bytes."""
    content = np.frombuffer(encoded, np.uint8).astype(np.intp)
    mixed = (content[:-2] * 31 + content[1:-1]) * 61 + content[2:]
    return np.asarray(mixed & (_TABLE - 1))
