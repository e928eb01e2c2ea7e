"""Frames texts of others for a prompt: as quoted data in named fields, shortened and escaped.

Text of skills and tasks is hostile input. In a frame it is one JSON string on one line, so that no
quote or line break of it ends the frame. Characters without a shape are removed, and control tokens
of chat templates are split, so that a server cannot take them for its own.
"""

from __future__ import annotations

import json
import re
import unicodedata

from skills.token_count import count_tokens

_CONTROL_TOKEN = re.compile(
    r"<(?=[|｜]|/?(?:s|bos|eos|think|thinking|tool_call|start_of_turn|end_of_turn)>)"
    r"|\[(?=/?INST\])|<(?=<SYS>>|</SYS>>)",
    re.IGNORECASE,
)
_SPACE = re.compile(r"\s+")
_MORE = "…"


def quote(text: str, max_tokens: int) -> str:
    """Return a text as one JSON string of about `max_tokens` tokens; the rest is cut."""
    return json.dumps(shorten(clean(text), max_tokens), ensure_ascii=False)


def clean(text: str) -> str:
    """Return a text on one line, without invisible characters and control tokens of templates."""
    visible = "".join(
        character if unicodedata.category(character)[0] != "C" else " "
        for character in unicodedata.normalize("NFC", text)
        if unicodedata.category(character) != "Cf"
    )
    return _CONTROL_TOKEN.sub(lambda match: f"{match[0]} ", _SPACE.sub(" ", visible)).strip()


def shorten(text: str, max_tokens: int) -> str:
    """Return the beginning of a text that has about `max_tokens` tokens, cut at a space."""
    if count_tokens(text) <= max_tokens:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if count_tokens(text[:middle]) < max_tokens:
            low = middle
        else:
            high = middle - 1
    head = text[:low]
    at_space = head.rpartition(" ")[0]
    return (at_space if len(at_space) > len(head) * 0.8 else head).rstrip() + _MORE
