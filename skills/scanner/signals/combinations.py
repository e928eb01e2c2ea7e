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
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product

from skills.scanner.normalised_text import NormalisedText
from skills.scanner.pattern_index import Candidate
from skills.scanner.rule import Rule
from skills.scanner.signals.phrases import PHRASE_SIGNALS, Signal
from skills.scanner.signals.vocabulary_signals import VOCABULARY_SIGNALS

ALL_SIGNALS = PHRASE_SIGNALS + VOCABULARY_SIGNALS
"""All weak signals."""

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
_ORDERED = tuple(
    (pairs, sorted(tuple(sorted(pair)) for pair in pairs))
    for pairs in (_PARAGRAPH, _SECTION, _FILE)
)
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
    found = _FoundSignals(
        text, {one.name: candidates[one] for one in ALL_SIGNALS if one in candidates}
    )
    reported: set[frozenset[str]] = set()
    for pairs, ordered in _ORDERED:
        known = frozenset(reported)
        for one, other in ordered:
            pair = frozenset((one, other))
            if pair in known or not found.has_both(one, other):
                continue
            for at, apart, what in _find_pair(found, one, other, found.scopes[pairs]):
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
    found: _FoundSignals, one: str, other: str, scope: Sequence[int]
) -> Iterator[tuple[int, int, str]]:
    """(offset, distance in characters, description) of each unit of `scope` that contains both
    signals; of several paragraphs with a signal, the one nearest to the other signal counts."""
    places = {name: found.list_anchored(name) for name in (one, other)}
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


class _FoundSignals:
    """The signals in a text, by paragraph, searched for when they are asked for."""

    def __init__(self, text: NormalisedText, candidates: Mapping[str, Candidate]) -> None:
        self._text, self._candidates = text, candidates
        self._known: dict[str, dict[int, int]] = {}
        self._anchored: dict[str, list[int]] = {}

    def has_both(self, one: str, other: str) -> bool:
        """Whether the text has both signals; the one that is cheaper to look for comes first."""
        if one not in self._candidates or other not in self._candidates:
            return False
        first, second = sorted((one, other), key=self._cost)
        return bool(self._find(first)) and bool(self._find(second))

    def at(self, name: str, place: int) -> int:
        """The offset of a signal in a paragraph, -1 if absent."""
        return self._find(name).get(place, -1)

    def list_anchored(self, name: str) -> list[int]:
        """The paragraphs that contain an anchor of a signal."""
        if name not in self._anchored:
            self._anchored[name] = _find_anchored_paragraphs(
                self._text.folded, self._text.paragraphs, self._candidates[name].anchors
            )
        return self._anchored[name]

    @cached_property
    def scopes(self) -> Mapping[_Pairs, Sequence[int]]:
        """The unit in which a pair counts, by paragraph: itself, its section, or the file."""
        starts = self._text.paragraphs
        heads = [head.start() for head in _HEADING.finditer(self._text.folded)]
        return {
            _PARAGRAPH: range(len(starts)),
            _SECTION: [bisect_right(heads, start) for start in starts],
            _FILE: [0] * len(starts),
        }

    def _cost(self, name: str) -> int:
        if name in self._known:
            return 0
        return sum(mask.bit_count() for _, mask in self._candidates[name].ways)

    def _find(self, name: str) -> Mapping[int, int]:
        if name not in self._known:
            found = (
                (place, _first_meant(_BY_NAME[name], self._text, matches))
                for place, matches in self._text.find_in_paragraphs(self._candidates[name])
            )
            self._known[name] = {place: at for place, at in found if at >= 0}
        return self._known[name]


def _find_anchored_paragraphs(
    folded: str, starts: Sequence[int], anchors: Sequence[str]
) -> list[int]:
    """The paragraphs that contain an anchor, the first _MAX_PLACES of each."""
    places = set()
    for anchor in anchors:
        at = folded.find(anchor)
        for _ in range(_MAX_PLACES):
            if at < 0:
                break
            place = bisect_right(starts, at) - 1
            places.add(place)
            following = starts[place + 1] if place + 1 < len(starts) else len(folded)
            at = folded.find(anchor, following)
    return sorted(places)


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
