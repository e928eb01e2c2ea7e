"""Framing of untrusted texts for a prompt: quoted data in named fields, shortened and escaped.

Text of skills and tasks is hostile input. In a frame it is one JSON string on one line, so that no
quote or line break in the text ends the frame. Characters without a shape are removed, and control
tokens of chat templates are split, so that a server cannot take them for its own.
"""

from __future__ import annotations

import json
import re
import unicodedata

from skills.token_count import count_tokens
from skills.unicode_normalization import normalize

_TAGS = (
    "s|bos|eos|eot|pad|unk|mask|think|thinking|thought|tool_call|tool_response|function_call"
    r"|(?:start|end)_of_\w{1,20}|fim_\w{1,20}|extra_id_\d{1,4}|unused\d{1,4}|0x[0-9a-f]{2}"
)
_BRACKETS = (
    "INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|TOOL_CALLS|TOOL_CONTENT|ARGS|CALL_ID|THINK"
    "|CLS|SEP|MASK|PAD|UNK|IMG|IMG_BREAK|IMG_END|gMASK|sMASK"
)
_CONTROL_TOKEN = re.compile(
    rf"<(?=[|｜]|/?(?:{_TAGS})>|<SYS>>|</SYS>>)|\[(?=/?(?:{_BRACKETS})\])", re.IGNORECASE
)
_FILLERS = re.compile("[\u115f\u1160\u3164\uffa0\u2800\u034f\u17b4\u17b5\U000e0100-\U000e01ef]")
_REPEATED_SELECTORS = re.compile("(?<=[\ufe00-\ufe0f])[\ufe00-\ufe0f]+")
_STACKED_MARKS = re.compile(r"(?<=[\u0300-\u036f]{3})[\u0300-\u036f]+")
_SPACE = re.compile(r"\s+")
_MORE = "…"
_MAX_TOKEN_CHARACTERS = 7
"""Maximum characters of one token in a clean text, including the space after it."""


def quote(text: str, max_tokens: int) -> str:
    """Return a text as one JSON string of about `max_tokens` tokens; the rest is cut."""
    return json.dumps(shorten(clean(text), max_tokens), ensure_ascii=False)


def clean(text: str) -> str:
    """Return a text on one line, without invisible characters and control tokens of templates.

    Cleaning it again changes nothing.
    """
    line = _SPACE.sub(" ", text).strip()
    if not (line.isascii() and line.isprintable()):  # most texts need none of this
        line = _remove_invisible(line)
    return _CONTROL_TOKEN.sub(lambda match: f"{match[0]} ", line)


def _remove_invisible(text: str) -> str:
    visible = "".join(
        character if unicodedata.category(character)[0] != "C" else " "
        for character in text
        if unicodedata.category(character) != "Cf"
    )
    shaped = _REPEATED_SELECTORS.sub("", _FILLERS.sub("", visible))
    composed = _STACKED_MARKS.sub("", normalize("NFC", shaped))
    return _SPACE.sub(" ", composed).strip()


def shorten(text: str, max_tokens: int) -> str:
    """Return the beginning of a text that has about `max_tokens` tokens, cut at a space."""
    if len(text) <= max_tokens * _MAX_TOKEN_CHARACTERS and count_tokens(text) <= max_tokens:
        return text
    low, high = 0, min(len(text), max_tokens * _MAX_TOKEN_CHARACTERS)
    while low < high:
        middle = (low + high + 1) // 2
        if count_tokens(text[:middle]) < max_tokens:
            low = middle
        else:
            high = middle - 1
    head = text[:low]
    at_space = head.rpartition(" ")[0]
    return (at_space if len(at_space) > len(head) * 0.8 else head).rstrip() + _MORE
