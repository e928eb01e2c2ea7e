"""Finds the patterns and concepts of rules in a text."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from skills.filtered_pattern import FilteredPattern
from skills.scanner.normalised_text import NormalisedText
from skills.scanner.rule import Concept, OrderRule, PatternRule
from skills.scanner.word_filter import WordFilter, may_match

_MAX_PLACES = 100
_MAX_SENTENCE = 600
_BEFORE, _AFTER = 400, 1_200
"""Characters around a required word in which a match of a pattern lies."""

Span = tuple[int, int]


class Reading:
    """A text, with the places of the concepts that were looked for in it."""

    def __init__(self, text: NormalisedText, words: WordFilter) -> None:
        self._text, self._folded = text, text.folded
        self._possible = words.find_possible(text.spaced)
        self._places: dict[Concept, list[Span]] = {}

    def find_pattern(self, rule: PatternRule) -> Iterator[Span]:
        """The ranges of the matches of a rule."""
        for way in rule.ways:
            if may_match(way, self._possible):
                for low, high in self._find_windows(way):
                    yield from (one.span() for one in way.pattern.finditer(self._folded, low, high))

    def find_order(self, rule: OrderRule) -> Iterator[Span]:
        """The ranges in which the concepts of a rule meet, one for each place of the first."""
        for start, end in self._find_places(rule.concepts[0]):
            low, high = self._window(start, end, rule.reach)
            found = [(start, end)]
            for concept in rule.concepts[1:]:
                place = concept.search(self._folded, found[-1][1] if rule.ordered else low, high)
                if place is None:
                    break
                found.append(place)
            else:
                if not (rule.unless and rule.unless.search(self._folded, low, high)):
                    yield min(at for at, _ in found), max(at for _, at in found)

    def _find_places(self, concept: Concept) -> list[Span]:
        if concept not in self._places:
            found: set[Span] = set()
            for way in concept.ways:
                if may_match(way, self._possible):
                    for low, high in self._find_sentences(way):
                        matches = way.pattern.finditer(self._folded, low, high)
                        found.update(one.span() for one in matches)
            self._places[concept] = sorted(found)[:_MAX_PLACES]
        return self._places[concept]

    def _find_words(self, way: FilteredPattern) -> Iterator[int]:
        """Offsets of the words of which each match of a pattern holds one, in any order."""
        for word in max(way.choices, key=lambda words: min(map(len, words))):
            if word in self._possible:
                at = self._text.spaced.find(word)
                while at >= 0:
                    yield at
                    at = self._text.spaced.find(word, at + len(word))

    def _find_windows(self, way: FilteredPattern) -> Iterator[Span]:
        """Ranges around the words of a pattern, which do not overlap."""
        low = high = -1
        for at in sorted(self._find_words(way)):
            if at - _BEFORE > high:
                if high >= 0:
                    yield low, high
                low = max(at - _BEFORE, 0)
            high = min(at + _AFTER, len(self._folded))
        if high >= 0:
            yield low, high

    def _find_sentences(self, way: FilteredPattern) -> Iterator[Span]:
        starts = self._text.sentences
        for number in sorted({bisect_right(starts, at) for at in self._find_words(way)}):
            yield starts[number - 1], self._end(number)

    def _end(self, number: int) -> int:
        starts = self._text.sentences
        return starts[number] if number < len(starts) else len(self._folded)

    def _window(self, start: int, end: int, reach: int) -> Span:
        """The sentence of a match, with `reach` sentences before and after it."""
        starts = self._text.sentences
        low = starts[max(bisect_right(starts, start) - 1 - reach, 0)]
        high = self._end(bisect_right(starts, end - 1) + reach)
        return max(low, start - _MAX_SENTENCE), min(high, end + _MAX_SENTENCE)
