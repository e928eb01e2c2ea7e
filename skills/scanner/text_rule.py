"""Rules that find concepts which meet in a sentence, or a pattern of a command.

A list of phrases would find only the examples that it was made from. Instead, each way of a rule in
`data/ways.toml` names concepts that honest skills do not combine in a sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from skills.scanner.data_files import join_parts, read_data_file
from skills.scanner.words import Concept, Places, Span


class Match(NamedTuple):
    """Offsets of a match. deed: offset of its first concept."""

    start: int
    end: int
    deed: int


@dataclass(frozen=True, slots=True, eq=False)
class TextRule:
    """One way of a rule: concepts that occur together, as `data/ways.toml` describes them.

    ideas: groups of concepts, of which one must occur.
    """

    rule: str
    ideas: tuple[tuple[Concept, ...], ...]
    unless: Concept | None = None
    reach: int = 0
    within: int = 300
    follows: int = 0
    spoken: bool = True

    def find(self, places: Places) -> Iterator[Match]:
        """Yield where the ideas occur together, in the order of the first one."""
        first, *others = self.ideas
        for place in sorted({one for concept in first for one in places.of_concept(concept)}):
            found = self._find_near(places, place, others)
            if found:
                yield found

    def _find_near(
        self, places: Places, place: Span, others: Sequence[Sequence[Concept]]
    ) -> Match | None:
        low, high = places.sentences(place, self.reach)
        within = self.follows or self.within
        low, high = max(low, place[0] - within), min(high, place[1] + within)
        is_ordered = self.follows > 0 and places.text[slice(*place)].isascii()
        met = [place]
        for group in others:
            start = met[-1][0] if is_ordered else low
            nearest = (places.nearest(concept, met[-1], start, high) for concept in group)
            found = next((one for one in nearest if one and one not in met), None)
            if found is None:
                return None
            met.append(found)
        if self.unless is not None and self.unless.regex.search(places.text, low, high):
            return None
        return Match(min(start for start, _ in met), max(end for _, end in met), place[0])


@cache
def list_concepts() -> Mapping[str, Concept]:
    """Return the concepts of `data/concepts.toml` by name."""
    plain = read_data_file("concepts.toml")
    return {
        name: Concept(one.get("words", ""), *join_parts(one.get("patterns", ()), plain["parts"]))
        for name, one in plain["concepts"].items()
    }


@cache
def list_text_rules() -> Sequence[TextRule]:
    """Return all ways of all rules in `data/ways.toml`."""
    plain, concepts = read_data_file("ways.toml"), list_concepts()
    rules = []
    for rule, patterns in plain["commands"].items():
        verbose = (f"(?x){one}" for one in join_parts(patterns, plain["parts"]))
        rules.append(TextRule(rule, ((Concept("", *verbose),),), spoken=False))
    for rule, ways in plain["ideas"].items():
        for way in ways:
            ideas = tuple(
                tuple(concepts[name] for name in group.split()) for group in way.pop("ideas")
            )
            unless = concepts.get(way.pop("unless", ""))
            rules.append(TextRule(rule, ideas, unless, **way))
    return rules
