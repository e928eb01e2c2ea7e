"""Edits of a JSON file that leave the rest of its text unchanged."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from json.decoder import JSONDecodeError
from typing import Any

from config.errors import UsageError

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_INDENT = re.compile(r"\n([ \t]+)[\"{\[]")


@dataclass(slots=True)
class Node:
    """A value and its position in the text.

    start, end: of the value. item_start: start of its key in an object, else of the value.
    children: values of an object or array, by key or index.
    """

    value: Any
    start: int
    end: int
    item_start: int
    children: dict[str | int, Node] = field(default_factory=dict)


def parse_json(text: str) -> Node:
    """Parse a JSON text into its root; raises UsageError if it is invalid or repeats a key."""
    try:
        json.loads(text, object_pairs_hook=_build_object)
        start = _skip_space(text, 0)
        return _parse_value(text, start, start)
    except JSONDecodeError as error:
        raise UsageError(
            f"not valid JSON: {error.msg} in line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise UsageError("not valid JSON: it is nested too deeply") from None


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    built = dict(pairs)
    if len(built) < len(pairs):
        raise UsageError("an object has the same key more than once")
    return built


def _skip_space(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return found.end() if found else place


def _parse_value(text: str, start: int, item_start: int) -> Node:
    """Return the value that starts at a position of a valid text."""
    if text[start] in "{[":
        return _parse_container(text, start, item_start)
    value, end = _DECODER.raw_decode(text, start)
    return Node(value, start, end, item_start)


def _parse_container(text: str, start: int, item_start: int) -> Node:
    node = Node({} if text[start] == "{" else [], start, start, item_start)
    place = _skip_space(text, start + 1)
    while text[place] not in "}]":
        first, name = place, len(node.children)
        key: str | int = name
        if text[start] == "{":
            key, place = _DECODER.raw_decode(text, place)
            place = _skip_space(text, _skip_space(text, place) + 1)
        child = _parse_value(text, place, first)
        node.children[key] = child
        place = _skip_space(text, child.end)
        if text[place] == ",":
            place = _skip_space(text, place + 1)
    values = {key: child.value for key, child in node.children.items()}
    node.value = values if text[start] == "{" else list(values.values())
    node.end = place + 1
    return node


def append_item(text: str, path: list[str | int], value: Any, key: str = "") -> str:
    """Return the text with a value appended to the container at a path. key: in an object."""
    node, depth = _find(text, path), len(path)
    newline = "\r\n" if "\r\n" in text else "\n"
    unit = _INDENT.search(text)
    indent = unit[1] if unit else "  "
    is_flat = bool(node.children) and "\n" not in text[node.start : node.end]
    item = json.dumps(value, ensure_ascii=False, indent=None if is_flat else indent)
    item = item.replace("\n", newline + indent * (depth + 1))
    if key:
        item = f"{json.dumps(key, ensure_ascii=False)}: {item}"
    if not node.children:
        inside = f"{newline}{indent * (depth + 1)}{item}{newline}{indent * depth}"
        return text[: node.start + 1] + inside + text[node.end - 1 :]
    last = list(node.children.values())[-1]
    gap = " " if is_flat else newline + indent * (depth + 1)
    return f"{text[: last.end]},{gap}{item}{text[last.end :]}"


def remove_item(text: str, path: list[str | int]) -> str:
    """Return the text without the item at a path, its comma and the space around it."""
    node, key = _find(text, path[:-1]), path[-1]
    keys, items = list(node.children), list(node.children.values())
    place = keys.index(key)
    if len(items) == 1:
        return text[: node.start + 1] + text[node.end - 1 :]
    if place == 0:
        return text[: items[0].item_start] + text[items[1].item_start :]
    return text[: items[place - 1].end] + text[items[place].end :]


def _find(text: str, path: list[str | int]) -> Node:
    node = parse_json(text)
    for key in path:
        node = node.children[key]
    return node
