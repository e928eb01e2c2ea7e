"""Reads YAML as JSON values, by the core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/#103-core-schema).

Nothing is repaired: a value that JSON cannot express exactly is an error. Dates stay text, since
the core schema has no dates.
"""

from __future__ import annotations

import re
from typing import TypeAlias

import yaml
from typing_extensions import override

from skills.parsing.strict_yaml import EventReader, YamlError, YamlLimits, get_line, parse_events

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
    if len(text) > limits.max_characters:
        raise YamlError("longer than the limit", 0)
    value: JsonValue = _JsonReader(parse_events(text), limits).read_document()
    return value


class _JsonReader(EventReader):
    """Refuses what JSON cannot hold."""

    @override
    def read_scalar(self, event: yaml.ScalarEvent) -> JsonValue:
        return _to_json(event, get_line(event))

    @override
    def check_collection(self, event: yaml.CollectionStartEvent) -> None:
        if event.tag:
            raise YamlError("a tag", get_line(event))

    @override
    def add_pair(
        self, mapping: dict[str, JsonValue], key: str, value: JsonValue, line: int
    ) -> None:
        if key in mapping:
            raise YamlError(f"the key {key[:80]!r} is given twice", line)
        mapping[key] = value


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
