"""Line-by-line parser for frontmatter that is not strict YAML; it keeps as much as possible."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

YamlValue: TypeAlias = "str | list[YamlValue] | dict[str, YamlValue]"
YamlMapping: TypeAlias = "dict[str, YamlValue]"

_KEY = re.compile(r"([\"']?)([^\W\d][\w .\-/]{0,60}?)\1[ \t]*:(?:[ \t]+(.*)|$)")
_COMMENT = re.compile(r"(?:^|\s)#(?:\s|$)")
_ENDED = re.compile(r"(\"(?:\\.|[^\"\\])*\"|'(?:''|[^'])*'|\[[^\]]*\])\s+#")
"""A quoted text or a list, with a comment after it."""
_ENTRY = re.compile(r"(?:\s*(?:\"(?:\\.|[^\"\\])*\"|'(?:''|[^'])*'))?[^,]*")
"""An entry of a list in brackets: a comma in quotes does not end it."""
_BLOCK = re.compile(r"([|>])[+\-0-9]*[ \t]*(?:#.*)?")
_DEPTH = 6


def parse_lenient_yaml(lines: Sequence[str], depth: int = 0) -> YamlMapping:
    """Parse the `key: value` pairs of the outermost level.

    The first non-empty value of a duplicate key is kept. Values may be quoted or plain text of one
    or more lines, block scalars (`|`, `>`), lists (`- a` or `[a, b]`) or nested mappings. Any other
    line continues the value before it.
    """
    lines = [line.replace("\t", "    ") for line in lines]
    margin = min((_indent(line) for line in lines if _KEY.match(line.strip())), default=0)
    mapping: YamlMapping = {}
    key, first, rest = "", "", list[str]()
    for line in lines:
        match = _KEY.match(line.strip()) if _indent(line) <= margin else None
        if match is None or (first[:1] in ("'", '"') and not _ends_quote(first, rest)):
            rest.append(line)
            continue
        if key and not mapping.get(key):
            mapping[key] = _value(first, rest, depth)
        key, first, rest = match[2].strip(), _drop_comment((match[3] or "").strip()), []
    if key and not mapping.get(key):
        mapping[key] = _value(first, rest, depth)
    return mapping


def _ends_quote(first: str, rest: Sequence[str]) -> bool:
    """Return whether a quoted value has ended.

    A value with a blank line, or with more than 12 further lines, counts as ended.
    """
    mark = first[0]
    if first.count(mark) >= 2:
        return True
    return len(rest) > 12 or any(not line.strip() or line.count(mark) for line in rest)


def _drop_comment(text: str) -> str:
    """Return a value without the comment after it; `#12` and `C#` are no comments."""
    if text[:1] in ("'", '"', "["):
        ended = _ENDED.match(text)
        return ended[1] if ended else text
    return _COMMENT.split(text, maxsplit=1)[0].rstrip()


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _value(first: str, rest: Sequence[str], depth: int) -> YamlValue:
    block = _BLOCK.fullmatch(first)
    if block:
        return _scalar_block(rest, folded=block[1] == ">")
    filled = [line for line in rest if line.strip() and not line.lstrip().startswith("#")]
    if not first and filled:
        if filled[0].lstrip().startswith(("- ", "-\n")) or filled[0].strip() == "-":
            return _items(filled, depth)
        if depth < _DEPTH and _indent(filled[0]) and _KEY.match(filled[0].strip()):
            return parse_lenient_yaml(filled, depth + 1)
    if first[:1] not in ("'", '"', "["):
        filled = [_drop_comment(line) for line in filled]
    text = " ".join([first, *(line.strip() for line in filled)]).strip()
    if text.startswith("[") and text.endswith("]"):
        return [_unquote(part.strip()) for part in _ENTRY.findall(text[1:-1]) if part.strip()]
    return _unquote(text)


def _items(lines: Sequence[str], depth: int) -> list[YamlValue]:
    """Parse the entries of a list; a multi-line entry that begins with a pair is a mapping."""
    margin = _indent(lines[0])
    items: list[list[str]] = []
    for line in lines:
        text = line.strip()
        if text.startswith("- ") or text == "-":
            if _indent(line) <= margin or not items:
                items.append([])
            text = text[1:].strip()
        if text:
            items[-1].append(text if not items[-1] else line)
    return [_item(item, depth) for item in items if item]


def _item(lines: Sequence[str], depth: int) -> YamlValue:
    if len(lines) > 1 and depth < _DEPTH and _KEY.match(lines[0]):
        inner = " " * _indent(lines[1])
        return parse_lenient_yaml([inner + lines[0], *lines[1:]], depth + 1)
    return _unquote(_drop_comment(" ".join(line.strip() for line in lines)))


def _scalar_block(lines: Sequence[str], folded: bool) -> str:
    margin = min((_indent(line) for line in lines if line.strip()), default=0)
    text = [line[margin:].rstrip() for line in lines]
    if not folded:
        return "\n".join(text).strip("\n")
    paragraphs = "\n".join(text).strip("\n").split("\n\n")
    return "\n".join(" ".join(part.split()) for part in paragraphs)


def _unquote(text: str) -> str:
    if len(text) < 2 or text[0] not in "'\"":
        return text
    if text[-1] == text[0]:
        inner = text[1:-1]
        return inner.replace("''", "'") if text[0] == "'" else inner.replace('\\"', '"')
    quoted, _, rest = text[1:].partition(text[0])
    return f"{quoted} {rest.strip()}".strip()
