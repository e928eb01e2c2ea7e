"""Slight signs that say little alone and much together, in one paragraph.

Text that asks for silence towards the user is common, and so is text that names a key file or an
upload; both in one paragraph have no honest use. A sign that is quoted or refused does not count.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import combinations

from skills.safety.context import Text
from skills.safety.signs import SIGNS, Sign

_BLANK = re.compile(r"\n[ \t]*(?=\n)")
_MAX_SIGNS = 50
_LOOK_AHEAD = 2_000

_TOGETHER: frozenset[frozenset[str]] = frozenset(
    frozenset((one, other))
    for one, others in {
        "silence": "secret private out config bypass code harm false pressure trigger answer door",
        "unseen": "secret private out config code harm answer door",
        "consent": "secret out config bypass code harm door",
        "trigger": "code secret out false",
        "secret": "answer out",
        "private": "out",
        "blind": "silence false",
        "bypass": "config",
        "config": "door",
    }.items()
    for other in others.split()
)
_GRAVE = frozenset(
    map(frozenset, (("silence", "secret"), ("silence", "code"), ("consent", "secret")))
)
_REFUSED = re.compile(
    r"\b(?:never|don't|do not|must not|avoid|dangerous|malicious|attacks?|attackers?|suspicious"
    r"|such as|e\.g\.|ask(?:ing)? (?:the user )?(?:before|first)|forbid(?:den)?|detects?"
    r"|rather than|instead of|not for|whether|refused?)\b"
    r"|禁止|不要|切勿|避免|攻击|恶意|例如|比如"
)
_SENTENCE = re.compile(r"[.!?。！？;；]\s|\n")
_BACK = 90


def signs_together(text: Text, present: frozenset[str]) -> Iterator[tuple[int, int, str]]:
    """(offset, level, what) of paragraphs in which signs stand together that should not."""
    starts = _paragraphs(text.folded)
    for place, signs in _anchored(text.folded, starts, present).items():
        names = {sign.name for sign in signs}
        if not any(pair <= names for pair in _TOGETHER):
            continue
        end = starts[place] if place < len(starts) else len(text.folded)
        found = [(_first(sign, text, starts[place - 1], end), sign) for sign in signs]
        there = [(offset, sign) for offset, sign in found if offset >= 0]
        for one, other in combinations(there, 2):
            pair = frozenset((one[1].name, other[1].name))
            if pair in _TOGETHER:
                level = 3 if pair in _GRAVE else 2
                yield min(one[0], other[0]), level, f"{one[1].what}, together with {other[1].what}"


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


def _anchored(
    folded: str, starts: list[int], present: frozenset[str]
) -> dict[int, list[Sign]]:
    """By paragraph, counted from 1, the signs of which it holds an anchor."""
    found: dict[int, list[Sign]] = {}
    for sign in SIGNS:
        places = set()
        for anchor in present.intersection(sign.anchors):
            at = folded.find(anchor)
            for _ in range(_MAX_SIGNS):
                if at < 0:
                    break
                place = bisect_right(starts, at)
                places.add(place)
                following = starts[place] if place < len(starts) else len(folded)
                at = folded.find(anchor, following)
        for place in sorted(places):
            found.setdefault(place, []).append(sign)
    return found


def _first(sign: Sign, text: Text, start: int, end: int) -> int:
    """Where a sign first stands in a paragraph and means it, -1 when it does not."""
    for match in sign.pattern.finditer(text.folded, start, end):
        at = match.start()
        if not (sign.words and text.quoted(at, in_code=True)) and not _is_refused(text, at):
            return at
    return -1


def _is_refused(text: Text, start: int) -> bool:
    before = text.folded[max(0, start - _BACK) : start]
    ends = [end.end() for end in _SENTENCE.finditer(before)]
    return bool(_REFUSED.search(before, ends[-1] if ends else 0))
