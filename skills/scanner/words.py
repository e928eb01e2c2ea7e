"""Finds the words and patterns of all rules in one pass over a text."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from ahocorasick_rs import AhoCorasick, Implementation

from skills.filtered_pattern import FilteredPattern
from skills.scanner.normalised_text import NormalisedText

Span = tuple[int, int]
_ENDINGS = re.compile(r"(?:ly|al|e|s|d|ed|es|ing|n|ies|ied|y|r|rs|er|ers|ion|ions)?(?![\w])")
_MIN_WORD = 3
"""Minimum bytes of a required word; shorter words occur in nearly every text."""
_MARKS = frozenset({"@", "0x", "/."})
_LOOKAROUND = 300
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


class WordFinder:
    """Finds all words of concepts, and all required words of their patterns, in one pass."""

    def __init__(self, concepts: Iterable[Concept]) -> None:
        words: set[str] = set()
        for concept in concepts:
            words.update(concept.words)
            words.update(*(choice for one in concept.patterns for choice in _choices(one)))
        self._words = sorted(words)
        self._automaton = AhoCorasick(self._words, implementation=Implementation.DFA)

    def find(self, spaced: str) -> dict[str, list[int]]:
        """Return word -> its offsets in a text; its white space must be spaces."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        words = self._words
        for number, start, _ in self._automaton.find_matches_as_indexes(spaced, overlapping=True):
            found[words[number]].append(start)
        return found


@cache
def _choices(pattern: FilteredPattern) -> Sequence[frozenset[str]]:
    """Return choices of words: every match of the pattern contains a word of each choice."""
    return [frozenset(choice) for choice in pattern.choices if all(map(_is_rare, choice))]


@cache
def _clues(concept: Concept) -> frozenset[str]:
    """Return words of which every text with the concept has one; empty if there are none."""
    if not all(map(_choices, concept.patterns)):
        return frozenset()
    rarest = (
        max(_choices(one), key=lambda choice: min(map(len, choice))) for one in concept.patterns
    )
    return frozenset(concept.words).union(*rarest)


def _is_rare(word: str) -> bool:
    return len(word.encode()) >= _MIN_WORD or word in _MARKS


class Places:
    """Places of concepts and patterns in a text; computed on first use."""

    def __init__(self, text: NormalisedText, finder: WordFinder) -> None:
        self.text, self._whole, self._found = text.folded, text, finder.find(text.spaced)
        self._places: dict[Concept, list[Span]] = {}
        self._known: dict[Concept, bool] = {}

    def of_concept(self, concept: Concept) -> list[Span]:
        """Return the places of a concept, in order."""
        if concept not in self._places:
            self._places[concept] = sorted({*self._find(concept)})
        return self._places[concept]

    def has_each(self, groups: Iterable[Sequence[Concept]]) -> bool:
        """Return whether the text has a concept of each group."""
        return all(any(map(self._has, group)) for group in groups)

    def _has(self, concept: Concept) -> bool:
        if concept not in self._known:
            clues = _clues(concept)
            may_have = not clues or not self._found.keys().isdisjoint(clues)
            self._known[concept] = may_have and next(self._find(concept), None) is not None
        return self._known[concept]

    def _find(self, concept: Concept) -> Iterator[Span]:
        for word in concept.words.keys() & self._found.keys():
            yield from self._of_word(word, concept.words[word])
        for pattern in concept.patterns:
            yield from self.of_pattern(pattern)

    def _of_word(self, word: str, may_end: bool) -> Iterator[Span]:
        text, latin = self.text, word[0] < "\u0250"
        for start in self._found[word]:
            end = start + len(word)
            if latin:
                ending = _ENDINGS.match(text, end) if may_end else None
                within = start and word[0].isalnum() and text[start - 1].isalnum()
                goes_on = word[-1].isalnum() and text[end : end + 1].isalnum()
                if within or (ending is None if may_end else goes_on):
                    continue
                end = ending.end() if ending else end
            yield start, end

    def of_pattern(self, pattern: FilteredPattern) -> Iterator[Span]:
        """Yield the matches of a pattern; only text near its required words is searched."""
        choices = _choices(pattern)
        if any(map(self._found.keys().isdisjoint, choices)):
            return
        offsets = [
            [at for word in choice for at in self._found.get(word, ())] for choice in choices
        ]
        windows = [[0, len(self.text)]] if not offsets else []
        for at in sorted(min(offsets, key=len, default=())):
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
