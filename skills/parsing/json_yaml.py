"""Reads YAML as JSON values, by the core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema).

Nothing is repaired: a value that JSON cannot express exactly is an error. Dates stay text, since
the core schema has no dates.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeAlias

import yaml

from skills.parsing.strict_yaml import YamlError, YamlLimits, get_line, parse_events

JsonValue: TypeAlias = "str | int | float | bool | list[JsonValue] | dict[str, JsonValue] | None"

_TAG = "tag:yaml.org,2002:"
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_MAX_DIGITS = 400


def parse_json_yaml(text: str, limits: YamlLimits) -> JsonValue:
    """Parse the first document of a YAML text; None for an empty document. Raises YamlError.

    Errors are: a key that occurs twice or is not a text, an alias of a list or mapping, a tag other
    than `str`, and a number that is infinite or NaN.
    """
    if len(text) > limits.max_bytes:
        raise YamlError("longer than the limit", 0)
    return _Reader(parse_events(text), limits).read_document()


class _Reader:
    """Builds JSON values from parse events."""

    def __init__(self, events: Iterator[yaml.Event], limits: YamlLimits) -> None:
        self._events = events
        self._limits = limits
        self._anchors: dict[str, JsonValue] = {}
        self._aliases = 0
        self._values = 0

    def read_document(self) -> JsonValue:
        for event in self._events:
            if not isinstance(event, yaml.StreamStartEvent | yaml.DocumentStartEvent):
                return None if isinstance(event, yaml.StreamEndEvent) else self._read(event, 0)
        return None

    def _read(self, event: yaml.Event, depth: int) -> JsonValue:
        line = get_line(event)
        self._values += 1
        if depth > self._limits.max_depth or self._values > self._limits.max_values:
            raise YamlError("nested too deeply or too many values", line)
        if isinstance(event, yaml.AliasEvent):
            return self._read_alias(event, line)
        if isinstance(event, yaml.ScalarEvent):
            value = _to_json(event, line)
            if event.anchor:
                self._anchors[event.anchor] = value
            return value
        if not isinstance(event, yaml.SequenceStartEvent | yaml.MappingStartEvent) or event.tag:
            raise YamlError("a tag", line)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[JsonValue] = []
            while not isinstance(inner := next(self._events), yaml.SequenceEndEvent):
                items.append(self._read(inner, depth + 1))
            return items
        return self._read_mapping(depth)

    def _read_mapping(self, depth: int) -> dict[str, JsonValue]:
        mapping: dict[str, JsonValue] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            line = get_line(event)
            key = self._read(event, depth + 1)
            if not isinstance(key, str):
                raise YamlError("a key that is not a text", line)
            if key in mapping:
                raise YamlError(f"the key {key[:80]!r} is given twice", line)
            mapping[key] = self._read(next(self._events), depth + 1)
        return mapping

    def _read_alias(self, event: yaml.AliasEvent, line: int) -> JsonValue:
        self._aliases += 1
        if self._aliases > self._limits.max_aliases:
            raise YamlError("too many aliases", line)
        if event.anchor not in self._anchors:
            raise YamlError("an alias that is not of a scalar", line)
        return self._anchors[event.anchor]


def _to_json(event: yaml.ScalarEvent, line: int) -> JsonValue:
    text = str(event.value)
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise YamlError("a character that JSON cannot hold", line)
    if event.tag not in (None, "!", f"{_TAG}str"):
        raise YamlError("a tag", line)
    if event.tag or event.style:
        return text
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if len(text) > _MAX_DIGITS:
        return text
    if _INTEGER.fullmatch(text):
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    if _NOT_FINITE.fullmatch(text):
        raise YamlError("a number that is not finite", line)
    if _FLOAT.fullmatch(text):
        number = float(text)
        if number in (float("inf"), float("-inf")):
            raise YamlError("a number that is not finite", line)
        return number
    return text
