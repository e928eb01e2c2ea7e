"""Combinations of weak signals, which are suspicious together.

An attack on the user has an act (reading a key file, an upload, a change of a file that steers
agents) and something that hides or excuses it (silence, no question, a condition, a false answer).
Each is common in honest skills; both close together hardly are. A pair whose two signals are far
apart counts less, and so does one with a file that steers agents where nothing is written. A signal
that is quoted or that the text warns against does not count.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import product

from skills.scanner.normalised_text import NormalisedText
from skills.scanner.pattern_index import Candidate
from skills.scanner.rule import Rule
from skills.scanner.signals.phrases import PHRASE_SIGNALS, Signal
from skills.scanner.signals.vocabulary_signals import VOCABULARY_SIGNALS

ALL_SIGNALS = PHRASE_SIGNALS + VOCABULARY_SIGNALS
"""All weak signals."""

_BLANK = re.compile(r"\n[ \t]*(?=\n)")
_HEADING = re.compile(r"(?m)^#{1,6} ")
_MAX_PLACES = 50
_MAX_LOOKAHEAD = 2_000

_Pairs = frozenset[frozenset[str]]


def _make_pairs(table: Mapping[str, str]) -> _Pairs:
    """The pairs of a table from names to the names that they combine with, separated by spaces."""
    return frozenset(
        frozenset(pair)
        for ones, others in table.items()
        for pair in product(ones.split(), others.split())
        if pair[0] != pair[1]
    )


_PARAGRAPH = _make_pairs(
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
"""Pairs that count within a paragraph only, being too common within a section."""
_SECTION = _make_pairs(
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
_FILE = _make_pairs(
    {
        "false": "out secret code harm door picture",
        "silence": "out",
        "trigger": "harm",
        "hidden_when": "out harm swap",
        "consent": "harm",
        "picture": "carry",
    }
)
"""Pairs that are rare enough to count anywhere in the file."""
_GRAVE = frozenset(
    map(frozenset, (("silence", "secret"), ("silence", "code"), ("consent", "secret")))
)
_STEERING = frozenset({"config", "memory"})
_WRITES = re.compile(
    r"\b(?:add|append|write|put|insert|set|edit|change|update|create|install|copy|paste|enable|save"
    r"|store|replace|modify|place|register|include|drop|rewrite|record|extend|keep|prepend|inject"
    r")(?:s|d|ed|ing)?\b|>>|写|加|添|追|插|改|设置|存|放|记|更新|创建|复制|替换"
)
"""Changes of a file. Most skills that name CLAUDE.md or a settings file read or explain it."""
_AROUND = 120
_NEGATION = re.compile(
    r"\b(?:never|don't|do not|must not|avoid|dangerous|malicious|attacks?|attackers?|suspicious"
    r"|such as|e\.g\.|ask(?:ing)? (?:the user )?(?:before|first)|forbid(?:den)?|detects?"
    r"|rather than|instead of|not for|whether|refused?)\b"
    r"|禁止|严禁|不要|切勿|绝不|避免|攻击|恶意|例如|比如"
)
_BACK = 90
NEAR_CHARACTERS = 300
"""Maximum distance of two signals that count fully. By chance a pair is in every long file: the two
are within 226 characters in each poisoned skill of the project's sets, and further apart than 200
in two fifths of the pairs in community skills."""


def find_combinations(
    text: NormalisedText, candidates: Mapping[Rule | Signal, Candidate]
) -> Iterator[tuple[int, int, str]]:
    """(offset, level, description) of suspicious combinations of signals.

    candidates: the signals that the text may hold (`PatternIndex.find_in`), among others.
    """
    signals = {one.name: candidates[one] for one in ALL_SIGNALS if one in candidates}
    starts = _find_paragraphs(text.folded)
    places = _find_anchored_paragraphs(text.folded, starts, signals)
    if len(places) < 2:
        return
    found = _SignalFinder(text, starts, signals)
    heads = [head.start() for head in _HEADING.finditer(text.folded)]
    sections = [bisect_right(heads, start) for start in starts]
    reported: set[frozenset[str]] = set()
    scopes = (
        (_PARAGRAPH, list(range(len(starts)))),
        (_SECTION, sections),
        (_FILE, [0] * len(starts)),
    )
    for pairs, scope in scopes:
        for pair in sorted(pairs - reported, key=sorted):
            one, other = sorted(pair)
            for at, apart, what in _find_pair(found, places, one, other, scope):
                reported.add(pair)
                weak = apart > NEAR_CHARACTERS or (
                    not pair.isdisjoint(_STEERING) and not _is_written(text, at, apart)
                )
                grave = pair in _GRAVE and pairs is _PARAGRAPH
                yield at, 1 if weak else 3 if grave else 2, what


def _is_written(text: NormalisedText, at: int, apart: int) -> bool:
    """Whether something is written in the words around two signals."""
    return bool(_WRITES.search(text.folded, max(0, at - _AROUND), at + apart + _AROUND))


def _find_pair(
    found: _SignalFinder, places: Mapping[str, list[int]], one: str, other: str, scope: list[int]
) -> Iterator[tuple[int, int, str]]:
    """(offset, distance in characters, description) of each unit of `scope` that contains both
    signals; of several paragraphs with a signal, the one nearest to the other signal counts."""
    if one not in places or other not in places:
        return
    if len(places[other]) < len(places[one]):
        one, other = other, one
    others: dict[int, list[int]] = {}
    for place in places[other]:
        others.setdefault(scope[place], []).append(place)
    best: dict[int, tuple[int, int]] = {}
    for place in places[one]:
        where = scope[place]
        if where not in others or best.get(where, (_MAX_LOOKAHEAD, 0))[0] <= NEAR_CHARACTERS:
            continue
        first = found.at(one, place)
        if first < 0:
            continue
        nearest = sorted(others[where], key=lambda near: abs(near - place))
        second = next((at for near in nearest if (at := found.at(other, near)) >= 0), -1)
        if second < 0:
            others.pop(where)
            continue
        here = abs(first - second), min(first, second)
        best[where] = min(here, best.get(where, here))
    names = sorted((one, other))
    what = ", together with ".join(_BY_NAME[name].description for name in names)
    for apart, at in best.values():
        yield at, apart, what


_BY_NAME = {signal.name: signal for signal in ALL_SIGNALS}


class _SignalFinder:
    """Finds signals in paragraphs, lazily and once each."""

    def __init__(
        self, text: NormalisedText, starts: list[int], signals: Mapping[str, Candidate]
    ) -> None:
        self._text, self._starts = text, [*starts, len(text.folded)]
        self._signals = signals
        self._known: dict[tuple[str, int], int] = {}

    def at(self, name: str, place: int) -> int:
        """The offset of a signal in a paragraph, -1 if absent."""
        if (name, place) not in self._known:
            start, end = self._starts[place], self._starts[place + 1]
            matches = self._text.find_matches(self._signals[name], start, end)
            self._known[name, place] = _first_meant(_BY_NAME[name], self._text, matches)
        return self._known[name, place]


def _find_paragraphs(folded: str) -> list[int]:
    """Offsets of paragraphs. A paragraph that ends in a colon includes the next one, and a code
    block includes the text after it."""
    ends = (blank for blank in _BLANK.finditer(folded) if not _goes_on(folded, blank))
    return [0, *(blank.end() for blank in ends)]


def _goes_on(folded: str, blank: re.Match[str]) -> bool:
    start, end = blank.span()
    if folded[start - 1 : start] in (":", "："):
        return True
    last = folded[folded.rfind("\n", 0, start) + 1 : start].strip()
    if last not in ("```", "~~~"):
        return False
    following = folded.find("\n\n", end + 1, end + _MAX_LOOKAHEAD)
    spoken = folded[end : following if following >= 0 else end + _MAX_LOOKAHEAD].strip()
    return spoken[-1:] not in (":", "：") and spoken[:1] not in ("#", "`", "~")


def _find_anchored_paragraphs(
    folded: str, starts: list[int], signals: Mapping[str, Candidate]
) -> dict[str, list[int]]:
    """By signal, the paragraphs that contain one of its anchors."""
    found = {}
    for name, candidate in signals.items():
        places = set()
        for anchor in candidate.anchors:
            at = folded.find(anchor)
            for _ in range(_MAX_PLACES):
                if at < 0:
                    break
                place = bisect_right(starts, at) - 1
                places.add(place)
                following = starts[place + 1] if place + 1 < len(starts) else len(folded)
                at = folded.find(anchor, following)
        if places:
            found[name] = sorted(places)
    return found


def _first_meant(signal: Signal, text: NormalisedText, matches: Iterator[re.Match[str]]) -> int:
    """Offset of a signal's first match that is neither quoted nor negated, else -1."""
    for match in matches:
        at = match.start()
        if not _is_quoted(signal, text, at) and not _is_negated(text, at):
            return at
    return -1


def _is_quoted(signal: Signal, text: NormalisedText, at: int) -> bool:
    """Whether a match is quoted: words by quotes or code, acts by quotes in texts about attacks."""
    if not signal.speech and (not text.is_about_attacks or text.in_code(at)):
        return False
    return text.is_quoted(at, in_code=True)


def _is_negated(text: NormalisedText, start: int) -> bool:
    before = text.sentence_before(start, _BACK)
    return bool(_NEGATION.search(before))
