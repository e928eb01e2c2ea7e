"""Finds text that people do not see and models read: invisible characters, HTML comments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from skills.scanner.character_folding import (
    BIDI,
    HOMOGLYPHS,
    MIXED_ALPHABET_WORD,
    SELECTORS,
    TAGS,
    ZERO_WIDTH,
)
from skills.scanner.normalised_text import NormalisedText

_FLAG = re.compile("\U0001f3f4[\U000e0020-\U000e007e]{1,8}\U000e007f")
_TAG_RUN = re.compile(f"[{TAGS}]+")
_OVERRIDE = re.compile("[\u202d\u202e]")
_EMBEDDING = re.compile("[\u202a-\u202c\u2066-\u2069]")
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_SELECTOR_RUN = re.compile(f"[{SELECTORS}]{{2,}}|[\ufe00-\ufe0f]{{3,}}")
_INSIDE_WORD = re.compile(f"(?<=[A-Za-z])[{ZERO_WIDTH}]+(?=[A-Za-z])")
_LONG_RUN = re.compile(f"[{ZERO_WIDTH}]{{4,}}")
_SPACE = re.compile("[\u200b\u2060-\u2064\u180e\u3164\uffa0\ufeff]")
_NOTABLE = re.compile(f"[{TAGS}{SELECTORS}{BIDI}{ZERO_WIDTH}{HOMOGLYPHS}]|[\ufe00-\ufe0f]{{3}}")
"""What a line with any of these findings holds."""

_SUSPICIOUS_WORDS = 2

_MAX_COMMENT_CHARACTERS = 4000
_IGNORE = r"(?<![-\w])(?:ignore|disregard)\s{1,3}(?:all|any|the|previous|prior|your|every\w*|what)"
_ORDER = re.compile(
    rf"{_IGNORE}\b|\b(?:you must|you are|you should|execute|run the|curl -{{1,2}}|curl http|"
    r"wget http|upload|secretly|silently|do not (?:tell|mention|inform|reveal)|don't (?:tell"
    r"|mention)|system prompt|send (?:the|all|your|it|this)|(?:ai|llm|agents?|assistants?|claude"
    r"|model)[ ,:]{1,3}(?:must|should|please|always|you|ignore|when))\b|忽略|无视|你必须|执行以下"
    r"|不要告诉|系统提示|上传|发送到"
)
_GRAVE = re.compile(
    rf"{_IGNORE}\b|\b(?:secretly|silently|do not (?:tell|inform)|don't tell|curl|wget|upload|"
    r"passwords?|credentials?|ssh)\b|忽略|无视|不要告诉|上传|密钥"
)

_TO_MODELS = re.compile(
    r"\s{0,20}(?:(?:note|message|instructions?|attention|important)\s(?:to|for)\s|for\s|hey\s)?"
    r"(?:the\s)?(?:(?:ai|llm|coding)\s)?(?:ai|llms?|agents?|assistants?|claude|gpt|copilot"
    r"|(?:language\s)?models?)(?:[- ]only)?\s?[:,.-]|\s{0,20}(?:给|致)?(?:模型|助手|智能体|代理"
    r"|大模型)(?:的(?:话|说明|指令))?(?:请|注意|：|，|:)"
)
_DEED = re.compile(
    r"\b(?:run|execute|install|fetch|add|print|send|append|include|read|write|delete|download|leave"
    r"|call|load|obey|follow|put|insert|change)\b|执行|运行|安装|加入|填入|读取|发送|写入|删除|不要"
    r"|改成|贴到|公开|提交"
)


def find_hidden_characters(lines: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """(line, level, description) of invisible characters without a legitimate use.

    Legitimate are joiners in emoji and in scripts that need them, flags spelt with tag characters,
    a byte order mark at the start of the file, and direction marks in right-to-left text.
    """
    if all(map(str.isascii, lines)):
        return
    for number, line in enumerate(lines, start=1):
        if not line.isascii() and _NOTABLE.search(line):
            for level, what in _find_in_line(line, first=number == 1):
                yield number, level, what


def _find_in_line(line: str, *, first: bool) -> Iterator[tuple[int, str]]:
    text = line.removeprefix("\ufeff") if first else line
    tags = _TAG_RUN.search(_FLAG.sub("", text))
    if tags:
        spelt = "".join(chr(ord(c) - 0xE0000) for c in tags.group()[:40])
        readable = "".join(c for c in spelt if c.isprintable())
        yield 3, f"Unicode tag characters that spell {readable!r}"
    if _SELECTOR_RUN.search(text):
        yield 3, "a run of variation selectors, which can carry a message"
    if not _RIGHT_TO_LEFT.search(text):
        if _OVERRIDE.search(text):
            yield 2, "a character that reverses the direction of the text"
        elif _EMBEDDING.search(text):
            yield 1, "direction marks without right-to-left text"
    mixed = len(set(MIXED_ALPHABET_WORD.findall(text)))
    if mixed:
        level = 2 if mixed >= _SUSPICIOUS_WORDS else 1
        yield level, "Cyrillic letters that look Latin within a Latin word"
    if _LONG_RUN.search(text):
        yield 2, "a run of zero-width characters, which can carry a message"
    elif _INSIDE_WORD.search(text):
        yield 2, "a zero-width character inside a word"
    elif _SPACE.search(text):
        yield 1, "a zero-width character"


def find_hidden_comments(text: NormalisedText) -> Iterator[tuple[int, int, str]]:
    """(offset, level, description) of HTML comments with instructions, outside code."""
    start = text.folded.find("<!--")
    while start >= 0:
        end = text.folded.find("-->", start)
        comment = text.folded[start + 4 : end if end >= 0 else None][:_MAX_COMMENT_CHARACTERS]
        order = _ORDER.search(comment)
        spoken = _TO_MODELS.match(comment)
        if spoken and _DEED.search(comment) and not text.in_code(start):
            yield start, 2, "an HTML comment with an order to models"
        elif order and not text.in_code(start):
            level = 2 if _GRAVE.search(comment) else 1
            yield start, level, f"an HTML comment with an order ({order.group()!r})"
        start = text.folded.find("<!--", end) if end >= 0 else -1
