"""Rules that find ideas together in a sentence, or a single pattern."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypedDict

from typing_extensions import Unpack

from skills.scanner.words import Concept, Places, Span

_Group = tuple[Concept, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TextRule:
    """A rule that finds ideas in a sentence, or in it and its neighbours.

    ideas: the first is looked for first, so it should be rare; of a group of ideas one is enough.
    unless: what must not be said there. reach: how many sentences away the others may be. within:
    how many characters. ordered: they follow each other, but in Chinese. spoken: these are words to
    the reader, which code or quotes only mention.
    """

    rule: str
    ideas: tuple[_Group, ...]
    unless: _Group = ()
    reach: int = 0
    within: int = 300
    ordered: bool = False
    spoken: bool = True

    def find(self, places: Places) -> Iterator[Span]:
        """The ranges in which the ideas meet, one for each place of the first."""
        first, *others = self.ideas
        for place in sorted({one for concept in first for one in places.of_concept(concept)}):
            low, high = places.sentences(place, self.reach)
            low, high = max(low, place[0] - self.within), min(high, place[1] + self.within)
            met = [place]
            ordered = self.ordered and places.is_ascii(place)
            for group in others:
                start = met[-1][0] if ordered else low
                nearest = (places.nearest(concept, met[-1], start, high) for concept in group)
                found = [one for one in nearest if one and one not in met]
                if not found:
                    break
                met += found[:1]
            else:
                if not any(places.nearest(one, place, low, high) for one in self.unless):
                    yield min(start for start, _ in met), max(end for _, end in met)

    @property
    def concepts(self) -> _Group:
        """All ideas of the rule."""
        return (*(one for group in self.ideas for one in group), *self.unless)


class Options(TypedDict, total=False):
    """Fields of a rule other than its ideas."""

    unless: _Group
    reach: int
    within: int
    ordered: bool
    spoken: bool


def order(rule: str, *ideas: Concept | _Group, **options: Unpack[Options]) -> TextRule:
    """A rule for orders in words."""
    groups = tuple(one if isinstance(one, tuple) else (one,) for one in ideas)
    return TextRule(rule, groups, **options)
