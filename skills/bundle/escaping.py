"""Escapes skill text, which is untrusted, for the Markdown of a bundle and for terminals.

A passage is enclosed in tags that its text cannot close, open or imitate. Any other value from a
skill is put on one line, in which it can neither start markup nor look like two values. Invisible
characters are replaced by a visible note.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from itertools import accumulate

_FLAG = "\U0001f3f4[\U000e0020-\U000e007e]{1,8}\U000e007f"
_CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufff9-\ufffb"
_INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufeff\uffa0\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_INVISIBLE_RUN = re.compile(f"{_FLAG}|[{_CONTROL}{_INVISIBLE}\ufe00-\ufe0f]+")
_UNSAFE_IN_TERMINAL = re.compile(f"[{_CONTROL}{_INVISIBLE}\ufe00-\ufe0f\ud800-\udfff]")
_JOINERS = frozenset("\u200c\u200d\ufe0e\ufe0f")

_LESS_THAN = "<\uff1c\ufe64\u2039\u3008\u2329\u27e8\u300a\u00ab\u02c2\u1438\u276e\u276c\u29fc\u227a"
_OPENING = re.compile(f"[{_LESS_THAN}]")
_TAG = "passage"
_SLASHES = "/\\\u2044\u2215\u2571\u29f8\u27cb"
_LOOK_ALIKES = str.maketrans(
    "\u0440\u03c1\u0430\u03b1\u0455\u0261\u0581\u0435\u03b5\u0501\u0251\ua731\u0262\u1d00\u1d07\u1d18",
    "ppaasggeedasgaep",
)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^\n]*)")
_ITEM = re.compile(r"(?: *(?:[-*+]|\d{1,9}[.)]) {1,4})+")
"""The marks of a list item before its text."""
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
    """Return the text of a passage, made safe between its tags.

    Only three things change: tags named `passage` or similar, invisible characters, and constructs
    that would extend past the end of the passage (an open code fence is closed, an open comment
    escaped).
    """
    if text.isascii() and "<" not in text and "`" not in text and "~" not in text:
        return show_invisible(text)
    return _close_open_blocks(_escape_tags(show_invisible(text)))


def escape_inline(text: str) -> str:
    """Return text from a skill on one line, without the start of a tag, link, image or comment."""
    return show_invisible(" ".join(text.split())).replace("<", "&lt;").replace("](", "]\\(")


def escape_terminal_line(text: str) -> str:
    """Return text from a skill as one line for a terminal, without control characters."""
    return show_invisible(" ".join(text.split()))


def escape_attribute(text: str) -> str:
    """Return text from a skill for a tag's attribute in double quotes."""
    return escape_inline(text).replace('"', "'").replace(">", "&gt;")


def quote_value(text: str) -> str:
    """Return a path, id or licence for a list of values: unchanged if plain, else as a JSON string.

    Thus one value cannot look like several.
    """
    shown = escape_inline(text)
    return shown if _PLAIN.fullmatch(shown) else json.dumps(shown, ensure_ascii=False)


def dump_terminal_json(data: object) -> str:
    """Return data as JSON that is safe on a terminal.

    Invisible and control characters are JSON escapes, so a parser reads the same data. Values of
    types unknown to JSON are converted to text.
    """
    text = json.dumps(data, indent=2, ensure_ascii=False, default=str)
    if text.isascii():
        return text.replace("\x7f", "\\u007f")
    return _UNSAFE_IN_TERMINAL.sub(
        lambda found: json.dumps(found.group())[1:-1].replace("\x7f", "\\u007f"), text
    )


def show_invisible(text: str) -> str:
    """Replace each run of invisible characters by a note with their number.

    Flags, and joiners in emoji and in scripts that need them, stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return _INVISIBLE_RUN.sub(_note_hidden, text)


def find_invisible(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each run of characters that `show_invisible` replaces."""
    return (run.span() for run in _INVISIBLE_RUN.finditer(text) if not _is_needed(run))


def _note_hidden(run: re.Match[str]) -> str:
    return run.group() if _is_needed(run) else f"[hidden characters: {len(run.group())}]"


def _is_needed(run: re.Match[str]) -> bool:
    """Return whether invisible characters belong to a flag, an emoji or joined letters."""
    hidden, text = run.group(), run.string
    if hidden[0] == "\U0001f3f4":
        return True
    before, after = text[run.start() - 1 : run.start()], text[run.end() : run.end() + 1]
    joined = len(hidden) <= 2 and _JOINERS.issuperset(hidden)
    return (
        joined
        and bool(before)
        and not before.isascii()
        and (not after.isascii() or hidden[-1] > "\ufe00")
    )


def _escape_tags(text: str) -> str:
    return _OPENING.sub(
        lambda found: "&lt;" if _has_tag_name(text, found.end()) else found[0],
        text,
    )


def _has_tag_name(text: str, start: int) -> bool:
    """Return whether the name of the tag stands at `start`, in any spelling.

    Reads up to the first other character only: a text may be full of `<`.
    """
    matched = 0
    for place in range(start, len(text)):
        shown = unicodedata.normalize("NFKD", text[place]).lower().translate(_LOOK_ALIKES)
        for letter in shown:
            if unicodedata.category(letter)[0] in "MCZ" or (not matched and letter in _SLASHES):
                continue
            if letter != _TAG[matched]:
                return False
            matched += 1
            if matched == len(_TAG):
                return True
    return False


def _close_open_blocks(text: str) -> str:
    """Close an open code fence, and escape the start of comments and tags that have no end."""
    lines, mark, width = [], "", 0
    outside: list[int] = []
    for number, line in enumerate(text.split("\n")):
        lines.append(line)
        if mark and line[:width].strip():  # the end of a list item ends its fence
            mark = ""
        if not mark:
            item = _ITEM.match(line)
            if item or line[:width].strip():
                width = item.end() if item else 0
        fence = _FENCE.fullmatch(line, width)
        if fence and not mark and not (fence[1][0] == "`" and "`" in fence[2]):
            mark = fence[1]
        elif fence and mark and fence[1].startswith(mark) and not fence[2].strip():
            mark = ""
        elif not mark:
            outside.append(number)
    after = _lower("\n".join(lines))
    last = {opener: after.rfind(end) for opener, end in _UNENDED}
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    for number in outside:
        if "<" in lines[number]:
            ended = {opener: place - starts[number] for opener, place in last.items()}
            lines[number] = _escape_unended(lines[number], ended)
    return "\n".join([*lines, " " * width + mark] if mark else lines)


def _lower(text: str) -> str:
    """Return the text in lower case; its length stays, as only U+0130 grows when lowered."""
    return text.replace("\u0130", "I").lower()


def _escape_unended(line: str, ended: dict[str, int]) -> str:
    """Escape each `<` in the line that opens a construct without an end.

    ended: by opener, the offset of the last end mark in the text, relative to the line's start.
    """
    shown, folded = [], _lower(line)
    for at, character in enumerate(line):
        unended = character == "<" and any(
            folded.startswith(opener, at) and place < at + len(opener)
            for opener, place in ended.items()
        )
        shown.append("&lt;" if unended else character)
    return "".join(shown)
