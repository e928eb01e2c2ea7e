"""Finds the concepts of order rules in the sentences of a text."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from skills.scanner.normalised_text import NormalisedText
from skills.required_words import Choice
from skills.scanner.rule import Concept, OrderRule

_MAX_PLACES = 100
_MAX_SENTENCE = 600


class Reading:
    """A text, with the places of the first concepts of rules that were looked for in it."""

    def __init__(self, text: NormalisedText) -> None:
        self._text = text
        self._places: dict[Concept, list[tuple[int, int]]] = {}

    def find(self, rule: OrderRule) -> Iterator[tuple[int, int]]:
        """The ranges in which the concepts of a rule meet, one for each place of the first."""
        for start, end in self._find_places(rule.concepts[0]):
            low, high = self._window(start, end, rule.reach)
            found = [(start, end)]
            for concept in rule.concepts[1:]:
                begin = found[-1][1] if rule.ordered else low
                place = concept.search(self._text.folded, begin, high)
                if place is None:
                    break
                found.append(place)
            else:
                if not (rule.unless and rule.unless.search(self._text.folded, low, high)):
                    yield min(at for at, _ in found), max(at for _, at in found)

    def _find_places(self, concept: Concept) -> list[tuple[int, int]]:
        """Matches of a concept, searched for in sentences that hold one of its anchors."""
        if concept in self._places:
            return self._places[concept]
        found: set[tuple[int, int]] = set()
        for way in concept.ways:
            if not self._text.words.may_match(way):
                continue
            anchors = max(way.choices, key=lambda words: min(map(len, words)), default=None)
            for low, high in self._find_sentences(anchors):
                found.update(one.span() for one in way.pattern.finditer(self._text.folded, low, high))
        self._places[concept] = sorted(found)[:_MAX_PLACES]
        return self._places[concept]

    def _find_sentences(self, anchors: Choice | None) -> Iterator[tuple[int, int]]:
        text, starts = self._text.spaced, self._text.sentences
        if anchors is None:
            yield 0, len(text)
            return
        numbers = set()
        for anchor in self._text.words.list_possible(anchors):
            at = text.find(anchor)
            while at >= 0:
                number = bisect_right(starts, at)
                numbers.add(number)
                at = text.find(anchor, starts[number]) if number < len(starts) else -1
        for number in sorted(numbers):
            yield starts[number - 1], starts[number] if number < len(starts) else len(text)

    def _window(self, start: int, end: int, reach: int) -> tuple[int, int]:
        """The sentence of a match, with `reach` sentences before and after it."""
        starts = self._text.sentences
        low = starts[max(bisect_right(starts, start) - 1 - reach, 0)]
        last = bisect_right(starts, end - 1) + reach
        high = starts[last] if last < len(starts) else len(self._text.folded)
        return max(low, start - _MAX_SENTENCE), min(high, end + _MAX_SENTENCE)
