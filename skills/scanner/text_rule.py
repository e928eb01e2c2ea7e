"""Rules that find a combination of concepts in a sentence, or a single pattern."""

from __future__ import annotations

from collections.abc import Iterator

from skills.scanner.words import Concept, Places, Span


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

    def find(self, places: Places) -> Iterator[Span]:
        """Yield the ranges in which the ideas occur together; they do not overlap."""
        if not places.has_each(self.ideas):
            return
        first, *others = self.ideas
        last = 0
        for place in sorted({one for concept in first for one in places.of_concept(concept)}):
            low, high = places.sentences(place, self.reach)
            low, high = max(low, place[0] - self._within), min(high, place[1] + self._within)
            met = [place]
            is_ordered = self._is_ordered and places.text[slice(*place)].isascii()
            for group in others:
                start = met[-1][0] if is_ordered else low
                nearest = (places.nearest(concept, met[-1], start, high) for concept in group)
                found = [one for one in nearest if one and one not in met]
                if not found:
                    break
                met += found[:1]
            else:
                if self.unless is None or places.nearest(self.unless, place, low, high) is None:
                    start, end = min(start for start, _ in met), max(end for _, end in met)
                    if start >= last:
                        yield start, end
                        last = end
