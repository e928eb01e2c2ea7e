"""Rules that find a combination of concepts in a sentence, or a single pattern."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from skills.scanner.words import Concept, Places, Span


class Match(NamedTuple):
    """Offsets of a match. deed: offset of its first concept."""

    start: int
    end: int
    deed: int


class TextRule:
    """A rule that finds concepts together in a sentence, or in neighbouring sentences."""

    def __init__(
        self,
        rule: str,
        *ideas: Concept | tuple[Concept, ...],
        unless: Concept | None = None,
        reach: int = 0,
        within: int = 300,
        follows: int = 0,
        spoken: bool = True,
    ) -> None:
        """ideas: concepts, or groups of which one concept must occur; the first is searched for
        first, so it should be rare. unless: concept that must not occur there. reach, within:
        maximum distance of the other concepts in sentences and in characters. follows: `within`,
        for concepts that must follow each other; their order is ignored in Chinese. spoken: whether
        these are words to the reader; in code or quotes they are only mentioned.
        """
        self.rule, self.unless, self.reach, self.spoken = rule, unless, reach, spoken
        self.ideas = tuple(one if isinstance(one, tuple) else (one,) for one in ideas)
        self._within, self._is_ordered = follows or within, follows > 0

    def find(self, places: Places) -> Iterator[Match]:
        """Yield where the ideas occur together, in the order of the first one."""
        if not places.has_each(self.ideas):
            return
        first, *others = self.ideas
        for place in sorted({one for concept in first for one in places.of_concept(concept)}):
            found = self._find_near(places, place, others)
            if found:
                yield found

    def _find_near(
        self, places: Places, place: Span, others: Sequence[Sequence[Concept]]
    ) -> Match | None:
        low, high = places.sentences(place, self.reach)
        low, high = max(low, place[0] - self._within), min(high, place[1] + self._within)
        is_ordered = self._is_ordered and places.text[slice(*place)].isascii()
        met = [place]
        for group in others:
            start = met[-1][0] if is_ordered else low
            nearest = (places.nearest(concept, met[-1], start, high) for concept in group)
            found = next((one for one in nearest if one and one not in met), None)
            if found is None:
                return None
            met.append(found)
        if self.unless is not None and places.nearest(self.unless, place, low, high) is not None:
            return None
        return Match(min(start for start, _ in met), max(end for _, end in met), place[0])
