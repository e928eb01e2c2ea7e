"""Display of untrusted text on pages: bounded, with invisible characters shown as code points."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import quote

from markupsafe import Markup, escape

from skills.bundle.escaping import find_invisible, show_invisible

MAX_CHARACTERS = 2_000
"""Maximum of characters that are shown of a value; of a line of a file `MAX_LINE_CHARACTERS`."""

MAX_LINE_CHARACTERS = 5_000

_MAX_NAMED = 12
_CODE = re.compile("`([^`]+)`")
_SURROGATES = re.compile("[\ud800-\udfff]")
_MAX_MARKS = 6


class Url(str):
    """A URL of a page, which is printed as it is: a shortened one would lead elsewhere."""


def show_value(value: object) -> object:
    """Return a value in the form that a page prints: text of bounded length,
    without invisible characters.

    It is the `finalize` of the template environment, called for every printed
    value; escaping follows.
    """
    if not isinstance(value, str) or isinstance(value, Markup | Url):
        return value
    if len(value) <= MAX_CHARACTERS and value.isascii() and value.isprintable():
        return value  # most values; a large page prints thousands
    more = len(value) - MAX_CHARACTERS
    shown = _limit_marks(show_invisible(_show_surrogates(value[:MAX_CHARACTERS])))
    return f"{shown}… [{more:,} more characters]" if more > 0 else shown


def show_line(line: str) -> Markup:
    """Return a line of a file as HTML; invisible characters are shown as code points."""
    more = len(line) - MAX_LINE_CHARACTERS
    line = line[:MAX_LINE_CHARACTERS]
    if line.isascii() and line.isprintable():
        shown = escape(line)
    else:
        shown = Markup("").join(_mark_invisible(_limit_marks(_show_surrogates(line))))
    if more > 0:
        shown += Markup('<span class="hidden-characters">{:,} more characters</span>').format(more)
    return shown


def show_code(text: str) -> Markup:
    """Return text as HTML; text between backticks becomes code."""
    parts = _CODE.split(str(show_value(text)))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else escape(part)
        for place, part in enumerate(parts)
    )


def shorten(text: str, most: int) -> str:
    """Return text of at most so many characters; one that is cut ends with an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def format_sentence(text: str) -> str:
    """Return text as a sentence: it begins with a capital letter and ends with a full stop."""
    end = "" if text.endswith((".", "?", "!", "…")) else "."
    return f"{text[:1].upper()}{text[1:]}{end}"


def _mark_invisible(line: str) -> Iterator[Markup]:
    end = 0
    for first, last in find_invisible(line):
        yield escape(line[end:first])
        end = last
        yield _name_characters(line[first:last])
    yield escape(line[end:])


def _name_characters(run: str) -> Markup:
    codes = [f"U+{ord(character):04X}" for character in run[:_MAX_NAMED]]
    if len(run) > _MAX_NAMED:
        codes.append(f"and {len(run) - _MAX_NAMED:,} more")
    names = ", ".join(unicodedata.name(one, "control character") for one in run[:_MAX_NAMED])
    return Markup('<span class="hidden-characters" title="{}">{}</span>').format(
        names, " ".join(codes)
    )


def _show_surrogates(text: str) -> str:
    """Return text that UTF-8 can encode: lone surrogates are shown as code points."""
    if text.isascii():
        return text
    return _SURROGATES.sub(lambda found: f"[U+{ord(found[0]):04X}]", text)


def _limit_marks(text: str) -> str:
    """Return text with few combining marks per character: many could cover other text."""
    if text.isascii():
        return text
    kept, marks, dropped = [], 0, 0
    for character in text:
        # Not `unicodedata.combining`, which is 0 for many of them, such as those of Thai.
        marks = marks + 1 if unicodedata.category(character) in ("Mn", "Me") else 0
        if marks > _MAX_MARKS:
            dropped += 1
            continue
        if dropped:
            kept.append(f"[{dropped} more marks]")
            dropped = 0
        kept.append(character)
    if dropped:
        kept.append(f"[{dropped} more marks]")
    return "".join(kept)


def format_time(seconds: float | None) -> str:
    """Return seconds since the epoch as UTC date and time; "never" for 0 and None."""
    if not seconds:
        return "never"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def format_iso_time(text: str | None) -> str:
    """Return an RFC 3339 time as UTC date and time; "unknown" for None or an empty text."""
    if not text:
        return "unknown"
    return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def format_json(value: object) -> str:
    """Return a value as JSON."""
    return json.dumps(value, ensure_ascii=False)


def format_bytes(size: int) -> str:
    """Return a size: `812 B`, `14.2 kB`, `3.1 MB`."""
    if size < 1_000:
        return f"{size} B"
    return f"{size / 1_000:.1f} kB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"


def format_event_type(name: str) -> str:
    """Return the type of an event in words: `skillbus.skill.removed.v1` is `skill removed`."""
    return name.removeprefix("skillbus.").removesuffix(".v1").replace(".", " ")


@lru_cache(maxsize=4_096)
def skill_path(skill_id: str) -> Url:
    """Return the path of a skill's page."""
    return Url(f"/console/skills/{_quote_id(skill_id)}")


def review_path(skill_id: str) -> Url:
    """Return the path of the review of a skill."""
    return Url(f"/console/review/{_quote_id(skill_id)}")


def _quote_id(skill_id: str) -> str:
    return quote(skill_id.encode("utf-8", "surrogatepass"), safe="/:@")
