"""Skill text as data: what stands in the Markdown of a bundle cannot leave its place.

A passage stands between tags that nothing in it can close, open or imitate, and every other value
from a skill stands on one line, in which it can neither start markup nor pass for two values.
Characters that show nothing are shown as what they are.
"""

from __future__ import annotations

import json
import re
import unicodedata
from itertools import accumulate

_FLAG = "\U0001f3f4[\U000e0020-\U000e007e]{1,8}\U000e007f"
_CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufff9-\ufffb"
_INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufeff\uffa0\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_SHOWS_NOTHING = re.compile(f"{_FLAG}|[{_CONTROL}{_INVISIBLE}\ufe00-\ufe0f]+")
_STEERS = re.compile(f"[{_CONTROL}{_INVISIBLE}\ufe00-\ufe0f\ud800-\udfff]")
_JOINERS = frozenset("\u200c\u200d\ufe0e\ufe0f")

_LESS_THAN = "<\uff1c\ufe64\u2039\u3008\u2329\u27e8\u300a\u00ab\u02c2\u1438\u276e\u276c\u29fc\u227a"
_OPENING = re.compile(f"[{_LESS_THAN}]")
_TAG = "passage"
_TAG_READ = 120
_SLASHES = "/\\\u2044\u2215\u2571\u29f8\u27cb"
_LOOK_ALIKES = str.maketrans(
    "\u0440\u03c1\u0430\u03b1\u0455\u0261\u0581\u0435\u03b5\u0501\u0251\ua731\u0262\u1d00\u1d07\u1d18",
    "ppaasggeedasgaep",
)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^\n]*)")
_UNENDED = (
    ("<!--", "-->"),
    ("<![cdata[", "]]>"),
    ("<?", "?>"),
    ("<script", "</script"),
    ("<style", "</style"),
    ("<textarea", "</textarea"),
    ("<pre", "</pre"),
)
_PLAIN = re.compile(r"[\w./:@+~=%#*-]+")


def escape_passage(text: str) -> str:
    """The text of a passage as it can stand between its tags.

    As in the file, but for tags of that name or like it, characters that show nothing, and what
    would go on beyond the passage: a code fence left open is closed, a comment left open escaped.
    """
    if text.isascii() and "<" not in text and "`" not in text and "~" not in text:
        return show_invisible(text)
    return _closed(_without_tags(show_invisible(text)))


def escape_inline(text: str) -> str:
    """Text from a skill on one line: no line, tag, link, image or comment begins in it."""
    return show_invisible(" ".join(text.split())).replace("<", "&lt;").replace("](", "]\\(")


def escape_terminal_line(text: str) -> str:
    """Text from a skill on one line of a terminal, which no character in it can steer."""
    return show_invisible(" ".join(text.split()))


def escape_attribute(text: str) -> str:
    """Text from a skill between the double quotes of a tag's attribute."""
    return escape_inline(text).replace('"', "'").replace(">", "&gt;")


def quote_value(text: str) -> str:
    """A path, id or licence beside other values: itself when plain, else as a JSON string, so
    that it cannot pass for more than one."""
    shown = escape_inline(text)
    return shown if _PLAIN.fullmatch(shown) else json.dumps(shown, ensure_ascii=False)


def dump_terminal_json(data: object) -> str:
    """Data as JSON that a terminal can show: the same data to whoever parses it, with what shows
    nothing or could steer the terminal as escapes. What JSON does not know becomes its text."""
    text = json.dumps(data, indent=2, ensure_ascii=False, default=str)
    if text.isascii():
        return text.replace("\x7f", "\\u007f")
    return _STEERS.sub(
        lambda found: json.dumps(found.group())[1:-1].replace("\x7f", "\\u007f"), text
    )


def show_invisible(text: str) -> str:
    """The text with each run of characters that show nothing replaced by their number.

    Joiners in emoji and in scripts that need them, and flags, stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return _SHOWS_NOTHING.sub(_named, text)


def _named(run: re.Match[str]) -> str:
    hidden, text = run.group(), run.string
    if hidden[0] == "\U0001f3f4":
        return hidden
    before, after = text[run.start() - 1 : run.start()], text[run.end() : run.end() + 1]
    joined = len(hidden) <= 2 and _JOINERS.issuperset(hidden)
    if (
        joined
        and before
        and not before.isascii()
        and (not after.isascii() or hidden[-1] > "\ufe00")
    ):
        return hidden
    return f"[hidden characters: {len(hidden)}]"


def _without_tags(text: str) -> str:
    return _OPENING.sub(
        lambda found: (
            "&lt;" if _begins_tag(text[found.end() : found.end() + _TAG_READ]) else found[0]
        ),
        text,
    )


def _begins_tag(following: str) -> bool:
    plain = unicodedata.normalize("NFKD", following).lower().translate(_LOOK_ALIKES)
    letters = "".join(c for c in plain if not unicodedata.category(c).startswith(("M", "C", "Z")))
    return letters.lstrip(_SLASHES + " \t\n").startswith(_TAG)


def _closed(text: str) -> str:
    """Close the fence that is left open, and escape what opens a comment and does not end it."""
    lines, mark = [], ""
    outside: list[int] = []
    for number, line in enumerate(text.split("\n")):
        lines.append(line)
        fence = _FENCE.fullmatch(line)
        if fence and not mark and not (fence[1][0] == "`" and "`" in fence[2]):
            mark = fence[1]
        elif fence and mark and fence[1].startswith(mark) and not fence[2].strip():
            mark = ""
        elif not mark:
            outside.append(number)
    after = "\n".join(lines).lower()
    last = {opener: after.rfind(end) for opener, end in _UNENDED}
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    for number in outside:
        if "<" in lines[number]:
            ended = {opener: place - starts[number] for opener, place in last.items()}
            lines[number] = _ended(lines[number], ended)
    return "\n".join([*lines, mark] if mark else lines)


def _ended(line: str, ended: dict[str, int]) -> str:
    """The line with each `<` escaped that opens what does not end; `ended`: by opener, where in
    the text, counted from the line's start, its end stands last."""
    shown, folded = [], line.lower()
    for at, character in enumerate(line):
        unended = character == "<" and any(
            folded.startswith(opener, at) and place < at + len(opener)
            for opener, place in ended.items()
        )
        shown.append("&lt;" if unended else character)
    return "".join(shown)
