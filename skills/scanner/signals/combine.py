"""Slight signs that say little alone and much together.

An order against a user has a deed (a key file, an upload, a file that steers agents) and something
that hides or excuses it (silence, no question, a condition, a false answer). Each is common in
honest skills; both in one section have next to no honest use. A sign that is quoted or refused
does not count.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import product

from skills.scanner.scanned_text import Text
from skills.scanner.signals.composed import PARTS
from skills.scanner.signals.signs import SIGNS, Sign

ALL_SIGNS = SIGNS + PARTS
"""Every sign there is."""

_BLANK = re.compile(r"\n[ \t]*(?=\n)")
_HEADING = re.compile(r"(?m)^#{1,6} ")
_MAX_SIGNS = 50
_LOOK_AHEAD = 2_000

_Pairs = frozenset[frozenset[str]]


def _pairs(table: Mapping[str, str]) -> _Pairs:
    """The pairs of a table: names, and those that each of them must not stand beside."""
    return frozenset(
        frozenset(pair)
        for ones, others in table.items()
        for pair in product(ones.split(), others.split())
        if pair[0] != pair[1]
    )


_PARAGRAPH = _pairs(
    {
        "silence": "secret private config",
        "mute": "private config",
        "consent": "secret config",
        "secret": "answer out address",
        "private": "out",
        "config": "code",
        "unheard": "gives config out code harm bypass swap picture bias",
        "gives": "theirs mute silence false trigger hidden_when agreed consent",
        "trusting": "config gives address feigned unheard mute silence",
    }
)
"""Too common over a whole section."""
_SECTION = _pairs(
    {
        "silence mute unseen false answer": (
            "out address picture carry bypass code harm door obey swap bias"
        ),
        "silence false": "trigger answer pressure blind",
        "silence": "false",
        "false": "mute unseen",
        "unseen": "secret private config",
        "consent": "out address bypass code harm door obey swap",
        "agreed": "out address harm door obey swap",
        "trigger hidden_when": "out address code harm swap secret door",
        "return": "door obey code bypass reach",
        "reach": "door obey swap harm bypass code",
        "feigned": "out address swap agreed",
        "picture": "secret private carry",
        "config memory": "bypass obey door",
        "answer": "secret",
        "door": "code",
        "pressure": "secret out address",
    }
)
_FILE = _pairs(
    {
        "false": "out secret code harm door picture",
        "silence": "out",
        "trigger": "harm",
        "hidden_when": "out harm swap",
        "consent": "harm",
        "picture": "carry",
    }
)
"""Seldom enough to be counted together wherever they stand."""
_GRAVE = frozenset(
    map(frozenset, (("silence", "secret"), ("silence", "code"), ("consent", "secret")))
)
_REFUSED = re.compile(
    r"\b(?:never|don't|do not|must not|avoid|dangerous|malicious|attacks?|attackers?|suspicious"
    r"|such as|e\.g\.|ask(?:ing)? (?:the user )?(?:before|first)|forbid(?:den)?|detects?"
    r"|rather than|instead of|not for|whether|refused?)\b"
    r"|禁止|不要|切勿|避免|攻击|恶意|例如|比如"
)
_BACK = 90


def signs_together(text: Text, present: frozenset[str]) -> Iterator[tuple[int, int, str]]:
    """(offset, level, what) of places where signs stand together that should not.

    `present` are the anchors that the text can hold (`Anchors.within`).
    """
    starts = _paragraphs(text.folded)
    places = _anchored(text.folded, starts, present)
    if len(places) < 2:
        return
    found = _Found(text, starts)
    heads = [head.start() for head in _HEADING.finditer(text.folded)]
    sections = [bisect_right(heads, start) for start in starts]
    told: set[frozenset[str]] = set()
    scopes = (
        (_PARAGRAPH, list(range(len(starts)))),
        (_SECTION, sections),
        (_FILE, [0] * len(starts)),
    )
    for pairs, scope in scopes:
        for pair in sorted(pairs - told, key=sorted):
            one, other = sorted(pair)
            for at, what in _beside(found, places, one, other, scope):
                told.add(pair)
                yield at, 3 if pair in _GRAVE and pairs is _PARAGRAPH else 2, what


def _beside(
    found: _Found, places: Mapping[str, list[int]], one: str, other: str, scope: list[int]
) -> Iterator[tuple[int, str]]:
    """(offset, what) of each stretch of `scope` (by paragraph) that has both signs."""
    if one not in places or other not in places:
        return
    if len(places[other]) < len(places[one]):
        one, other = other, one
    others: dict[int, list[int]] = {}
    for place in places[other]:
        others.setdefault(scope[place], []).append(place)
    done = set()
    for place in places[one]:
        where = scope[place]
        if where in done or where not in others:
            continue
        first = found.at(one, place)
        if first < 0:
            continue
        second = next((at for near in others[where] if (at := found.at(other, near)) >= 0), -1)
        if second < 0:
            others.pop(where)
            continue
        done.add(where)
        names = sorted((one, other))
        yield min(first, second), ", together with ".join(_BY_NAME[name].what for name in names)


_BY_NAME = {sign.name: sign for sign in ALL_SIGNS}


class _Found:
    """Where signs stand in paragraphs; each is looked for once, and only when asked for."""

    def __init__(self, text: Text, starts: list[int]) -> None:
        self._text, self._starts = text, [*starts, len(text.folded)]
        self._known: dict[tuple[str, int], int] = {}

    def at(self, name: str, place: int) -> int:
        """The offset of a sign in a paragraph, -1 where it is not."""
        if (name, place) not in self._known:
            start, end = self._starts[place], self._starts[place + 1]
            self._known[name, place] = _first(_BY_NAME[name], self._text, start, end)
        return self._known[name, place]


def _paragraphs(folded: str) -> list[int]:
    """Where paragraphs begin; what a colon introduces belongs to it, and to a code block what is
    said after it."""
    ends = (blank for blank in _BLANK.finditer(folded) if not _goes_on(folded, blank))
    return [0, *(blank.end() for blank in ends)]


def _goes_on(folded: str, blank: re.Match[str]) -> bool:
    start, end = blank.span()
    if folded[start - 1 : start] in (":", "："):
        return True
    last = folded[folded.rfind("\n", 0, start) + 1 : start].strip()
    if last not in ("```", "~~~"):
        return False
    following = folded.find("\n\n", end + 1, end + _LOOK_AHEAD)
    spoken = folded[end : following if following >= 0 else end + _LOOK_AHEAD].strip()
    return spoken[-1:] not in (":", "：") and spoken[:1] not in ("#", "`", "~")


def _anchored(folded: str, starts: list[int], present: frozenset[str]) -> dict[str, list[int]]:
    """By sign, the paragraphs that hold one of its anchors."""
    found = {}
    for sign in ALL_SIGNS:
        places = set()
        for anchor in present.intersection(sign.anchors):
            at = folded.find(anchor)
            for _ in range(_MAX_SIGNS):
                if at < 0:
                    break
                place = bisect_right(starts, at) - 1
                places.add(place)
                following = starts[place + 1] if place + 1 < len(starts) else len(folded)
                at = folded.find(anchor, following)
        if places:
            found[sign.name] = sorted(places)
    return found


def _first(sign: Sign, text: Text, start: int, end: int) -> int:
    """Where a sign first stands in a paragraph and means it, -1 when it does not."""
    for match in sign.pattern.finditer(text.folded, start, end):
        at = match.start()
        if not _is_quoted(sign, text, at) and not _is_refused(text, at):
            return at
    return -1


def _is_quoted(sign: Sign, text: Text, at: int) -> bool:
    """Words are quoted by marks and code blocks; deeds by marks, in a text about attacks."""
    if not sign.words and (not text.teaches or text.in_code(at)):
        return False
    return text.quoted(at, in_code=True)


def _is_refused(text: Text, start: int) -> bool:
    before = text.sentence_before(start, _BACK)
    return bool(_REFUSED.search(before))
