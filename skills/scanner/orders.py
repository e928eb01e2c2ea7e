"""Rules for orders in words: ideas that honest skills do not bring together in a sentence.

A list of phrases finds its own examples. Each rule here says which ideas must meet; the words for them
are in `skills.scanner.concepts`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypedDict

from skills.scanner import concepts as c
from skills.scanner.words import Concept, Places, Span


@dataclass(frozen=True, slots=True, eq=False)
class OrderRule:
    """A rule that finds ideas together in a sentence, or in it and its neighbours.

    ideas: the first is looked for first, so it should be rare; of a group of ideas one is enough.
    unless: what must not be said there. reach: how many sentences away the others may be. within: how
    many characters. ordered: they follow each other, but in Chinese. spoken: these are words to the
    reader, which code or quotes only mention.
    """

    rule: str
    ideas: tuple[tuple[Concept, ...], ...]
    unless: tuple[Concept, ...] = ()
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


class _Options(TypedDict, total=False):
    unless: tuple[Concept, ...]
    within: int
    ordered: bool


def _rule(
    rule: str,
    *ideas: Concept | tuple[Concept, ...],
    unless: tuple[Concept, ...] = (),
    reach: int = 0,
    within: int = 300,
    ordered: bool = False,
    spoken: bool = True,
) -> OrderRule:
    groups = tuple(one if isinstance(one, tuple) else (one,) for one in ideas)
    return OrderRule(rule, groups, unless, reach, within, ordered, spoken)


_OUT: _Options = {"unless": (c.LOGIN, c.CONDITION), "within": 200, "ordered": True}
_NOW: _Options = {"unless": (c.CONDITION,), "ordered": True}
_HIDDEN = (c.SILENCE, c.COVER_STORY, c.UNASKED, c.SECRETLY)

ORDER_RULES = (
    _rule("override-instructions", c.DROPS, c.EARLIER, c.GUIDANCE, unless=(c.STYLE,), within=70),
    _rule("override-instructions", c.UNBOUND),
    _rule("claims-precedence", c.OUTRANKS, c.SELF, c.PERSON, within=120),
    _rule("order-to-send-secrets", (c.SENDS, c.INCLUDES), c.SECRETS, c.OUTSIDE, **_OUT),
    _rule("hidden-act", c.SECRETLY, (c.SENDS, c.COLLECTS), within=16, ordered=True),
    _rule("hidden-act", (c.SILENCE, c.COVER_STORY), c.SENDS, c.OUTSIDE, reach=1),
    _rule("keep-from-user", (c.SILENCE, c.COVER_STORY)),
    _rule("standing-order-to-send", c.STANDING, c.SENDS, c.DATA, c.OUTSIDE, unless=(c.CONSENT,)),
    _rule(
        "standing-order-to-send",
        c.PRETEXT,
        c.SENDS,
        c.DATA,
        c.OUTSIDE,
        unless=(c.CONSENT,),
        reach=1,
    ),
    _rule("order-to-send-private-data", c.PRIVATE, c.SENDS, c.OUTSIDE, unless=(c.CONSENT,)),
    _rule("order-to-send-private-data", c.UNASKED, c.SENDS, c.OUTSIDE, reach=1),
    _rule("host-controls-off", c.SWITCHES_OFF, c.CONTROLS, **_NOW, within=70),
    _rule("checks-off", c.SWITCHES_OFF, c.CHECKS, c.FOR_GOOD, unless=(c.CONDITION,), within=120),
    _rule("checks-off", c.OPENS_UP, c.UNASKED, unless=(c.NEVER,), reach=1),
    _rule("checks-off", c.OPENS_UP, c.STEERING_FILES, unless=(c.CONDITION,)),
    _rule("writes-steering-file", c.STEERING_FILES, c.WRITES, _HIDDEN, within=200),
    _rule(
        "writes-steering-file", c.STEERING_FILES, c.WRITES, c.OUTSIDE, c.OBEYS, reach=2, within=400
    ),
    _rule(
        "obeys-fetched-text", c.FETCHES, c.OUTSIDE, c.OBEYS, unless=(c.DOCUMENTATION,), ordered=True
    ),
    _rule("order-to-destroy", (c.DESTROYS, c.EMPTIES), c.PRECIOUS, **_NOW, within=50),
    _rule("order-to-destroy", c.UNASKED, c.DESTROYS, unless=(c.CONDITION,), within=120),
    _rule("order-to-destroy", c.ENCRYPTS, c.USER_FILES, c.RANSOM, reach=1),
    _rule("wipes-traces", (c.DESTROYS, c.EMPTIES), c.TRACES, **_NOW, within=60),
    _rule("against-other-skills", (c.DROPS, c.SWITCHES_OFF), c.OTHER_SKILLS, **_NOW, within=40),
    _rule("obeys-encoded-text", c.DECODES),
    _rule("redirects-payment", c.ACCOUNTS, c.ACCOUNT_NUMBER, within=120),
    _rule("hidden-access", c.ACCESS, c.WRITES, unless=(c.CONDITION,)),
    _rule("asks-for-secrets", c.ASKS_FOR, c.LOGIN_SECRET, c.OUTSIDE, reach=1),
    _rule("archive-with-password", c.ARCHIVE, c.DOWNLOADS, c.PASSWORD_GIVEN, reach=1, spoken=False),
    _rule("paste-in-terminal", c.TERMINAL, c.COPIES, c.PAGE, reach=1, spoken=False),
    _rule("fake-prerequisite", c.PROGRAM, c.NEEDED, c.RUNS, reach=2, spoken=False),
)

CONCEPTS = frozenset(
    concept
    for rule in ORDER_RULES
    for concept in (*(one for group in rule.ideas for one in group), *rule.unless)
)
