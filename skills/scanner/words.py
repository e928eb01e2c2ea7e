"""Finds concepts, which are words and patterns, in one pass over a text."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache, cached_property

from ahocorasick_rs import AhoCorasick, Implementation

from skills.filtered_pattern import FilteredPattern
from skills.scanner.normalised_text import NormalisedText

Span = tuple[int, int]
_ENDINGS = r"(?:ly|al|e|s|d|ed|es|ing|n|ies|ied|y|r|rs|er|ers|ion|ions)?(?!\w)"
_MIN_WORD = 3
"""Minimum bytes of a required word; shorter words occur in nearly every text."""
_MARKS = frozenset({"@", "0x", "/."})
_LOOKAROUND = 100
"""Characters after a match that its lookaheads may read."""


class Concept:
    """A concept, expressed by words, phrases and patterns.

    words: separated by white space, with `_` for a space and `~` for any ending of an English word.
    Words that do not begin with a Latin letter may be part of a longer word. patterns: regular
    expressions.
    """

    def __init__(self, words: str = "", *patterns: str) -> None:
        plain = [word.replace("_", " ") for word in words.split()]
        self.words = {word.rstrip("~"): word.endswith("~") for word in plain}
        """Word -> whether it may have any ending."""
        self.patterns = tuple(map(FilteredPattern, patterns))

    @cached_property
    def clues(self) -> frozenset[str]:
        """Words of which every text with the concept has one; empty if there are none."""
        clues = [*map(_find_clues, self.patterns)]
        return frozenset(self.words).union(*clues) if all(clues) else frozenset()

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """One pattern of all words and patterns."""
        words = (_compile_word(*word).pattern for word in self.words.items())
        return re.compile("|".join([*words, *(one.pattern.pattern for one in self.patterns)]))


@cache
def _compile_word(word: str, may_end: bool) -> re.Pattern[str]:
    is_latin = word[0] < "\u0250"
    start = r"(?<![^\W_])" if is_latin and word[0].isalnum() else ""
    end = r"(?![^\W_])" if is_latin and word[-1].isalnum() else ""
    text = re.escape(word).replace(r"\ ", r"\s")
    return re.compile(f"{start}{text}{_ENDINGS if may_end else end}")


@cache
def _find_clues(pattern: FilteredPattern) -> Collection[str]:
    """Return words of which every match of a pattern contains one; none if all may be common."""
    choices = [one for one in pattern.choices if all(map(_is_rare, one))]
    return max(choices, key=lambda words: min(map(len, words)), default=())


def _is_rare(word: str) -> bool:
    return len(word.encode()) >= _MIN_WORD or word in _MARKS


class WordFinder:
    """Finds all words of concepts, and all required words of their patterns, in one pass."""

    def __init__(self, concepts: Collection[Concept]) -> None:
        known: defaultdict[str, set[Concept]] = defaultdict(set)
        for concept in concepts:
            for word in concept.clues or {*concept.words}.union(
                *map(_find_clues, concept.patterns)
            ):
                known[word].add(concept)
        self.concepts = known
        """Word -> concepts that a text with it may have."""
        self.unclear = frozenset(concept for concept in concepts if not concept.clues)
        """Concepts that any text may have."""
        self._words = sorted(known)
        self._automaton = AhoCorasick(self._words, implementation=Implementation.DFA)

    def find(self, spaced: str) -> dict[str, list[int]]:
        """Return word -> its offsets in a text; its white space must be spaces."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        words = self._words
        for number, start, _ in self._automaton.find_matches_as_indexes(spaced, overlapping=True):
            found[words[number]].append(start)
        return found


class Places:
    """Places of concepts and patterns in a text; computed on first use."""

    def __init__(self, text: NormalisedText, finder: WordFinder) -> None:
        self.text, self._whole, self._found = text.folded, text, finder.find(text.spaced)
        self._possible = finder.unclear.union(*map(finder.concepts.__getitem__, self._found))
        self._places: dict[Concept, list[Span]] = {}

    def of_concept(self, concept: Concept) -> list[Span]:
        """Return the places of a concept, in order."""
        if concept not in self._places:
            self._places[concept] = sorted({*self._find(concept)})
        return self._places[concept]

    def has_each(self, groups: Sequence[Sequence[Concept]]) -> bool:
        """Return whether the text has a concept of each group."""
        return self.may_have(groups) and all(any(map(self._has, group)) for group in groups)

    def _has(self, concept: Concept) -> bool:
        return next(self._find(concept), None) is not None

    def may_have(self, groups: Iterable[Iterable[Concept]]) -> bool:
        """Return whether the text has words of a concept of each group."""
        return not any(map(self._possible.isdisjoint, groups))

    def _find(self, concept: Concept) -> Iterator[Span]:
        for text in concept.words.keys() & self._found.keys():
            word = _compile_word(text, concept.words[text])
            found = (word.match(self.text, start) for start in self._found[text])
            yield from (match.span() for match in found if match)
        for pattern in concept.patterns:
            yield from self.of_pattern(pattern)

    def of_pattern(self, pattern: FilteredPattern) -> Iterator[Span]:
        """Yield the matches of a pattern; only text near its required words is searched."""
        clues = _find_clues(pattern)
        windows = [] if clues else [[0, len(self.text)]]
        for at in sorted(at for word in clues for at in self._found.get(word, ())):
            low, high = max(at - pattern.width, 0), at + pattern.width + _LOOKAROUND
            if windows and low <= windows[-1][1]:
                windows[-1][1] = high
            else:
                windows.append([low, high])
        for low, high in windows:
            yield from (one.span() for one in pattern.pattern.finditer(self.text, low, high))

    def sentences(self, span: Span, reach: int) -> Span:
        """Return the range of the sentence of a place, with `reach` sentences before and after."""
        starts = self._whole.sentences
        first = bisect_right(starts, span[0]) - 1 - reach
        last = bisect_right(starts, span[1] - 1) + reach
        return starts[max(first, 0)], starts[last] if last < len(starts) else len(self.text)

    def nearest(self, concept: Concept, span: Span, low: int, high: int) -> Span | None:
        """Return the place of a concept in a range that is nearest to a span; the first on a tie.

        The search goes from the span to both sides, since a hostile text may have a place at every
        word.
        """
        places = self.of_concept(concept)
        first, last = (bisect_left(places, (at, 0)) for at in (low, high))
        middle = min(max(bisect_left(places, (span[0], 0)), first), last)
        after, before = (
            next((places[at] for at in side if places[at][1] <= high), None)
            for side in (range(middle, last), range(middle - 1, first - 1, -1))
        )
        if before is None or (after and after[0] - span[0] < span[0] - before[0]):
            return after
        return places[bisect_left(places, (before[0], 0))]
