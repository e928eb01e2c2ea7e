"""Safe parser of strict YAML: scalars stay strings; aliases, depth and size are limited."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

from skills.parsing.lenient_yaml import YamlMapping, YamlValue

_Loader: type[yaml.BaseLoader] | type[yaml.CBaseLoader]
_Loader = yaml.CBaseLoader if yaml.__with_libyaml__ else yaml.BaseLoader


@dataclass(frozen=True, slots=True)
class YamlLimits:
    """Limits of a frontmatter: characters, levels of nesting, uses of aliases, values."""

    max_bytes: int = 131_072
    max_depth: int = 20
    max_aliases: int = 50
    max_values: int = 20_000


class YamlError(Exception):
    """The text is not YAML within the limits; `line` counts from 0."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


@dataclass(slots=True)
class YamlDocument:
    """The mapping of a document, None if it is not a mapping, and (duplicate key, line) pairs."""

    mapping: YamlMapping | None = None
    duplicates: list[tuple[str, int]] = field(default_factory=list)


def parse_strict_yaml(text: str, limits: YamlLimits) -> YamlDocument:
    """Parse the first document of a YAML text; an empty document is an empty mapping.

    The first non-empty value of a duplicate key is kept. An alias may only refer to a scalar.
    Raises YamlError.
    """
    result = YamlDocument()
    value = _Reader(parse_events(text), limits, result).document()
    if isinstance(value, dict):
        result.mapping = value
    elif value in ("", None):
        result.mapping = {}
    return result


def parse_events(text: str) -> Iterator[yaml.Event]:
    """Yield the events of a YAML text. Raises YamlError."""
    try:
        yield from yaml.parse(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlError(error.problem or "bad syntax", mark.line if mark else 0) from error
    except (yaml.YAMLError, ValueError) as error:
        raise YamlError("a character that YAML does not allow", 0) from error


def get_line(event: yaml.Event) -> int:
    """Return the line of an event, counted from 0."""
    return event.start_mark.line if event.start_mark else 0


class _Reader:
    """Builds plain values from parse events."""

    def __init__(
        self, events: Iterator[yaml.Event], limits: YamlLimits, into: YamlDocument
    ) -> None:
        self._events = events
        self._limits = limits
        self._duplicates = into.duplicates
        self._anchors: dict[str, str] = {}
        self._aliases = 0
        self._values = 0

    def document(self) -> YamlValue | None:
        for event in self._events:
            if not isinstance(event, yaml.StreamStartEvent | yaml.DocumentStartEvent):
                return None if isinstance(event, yaml.StreamEndEvent) else self._value(event, 0)
        return None

    def _value(self, event: yaml.Event, depth: int) -> YamlValue:
        line = get_line(event)
        self._values += 1
        if depth > self._limits.max_depth or self._values > self._limits.max_values:
            raise YamlError("nested too deeply or too many values", line)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, line)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[YamlValue] = []
            while not isinstance(inner := next(self._events), yaml.SequenceEndEvent):
                items.append(self._value(inner, depth + 1))
            return items
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(depth)
        if not isinstance(event, yaml.ScalarEvent):
            return ""
        text = replace_invalid_characters(event.value)
        if event.implicit[0] and not event.style and text in ("null", "~", "Null", "NULL"):
            text = ""
        if event.anchor:
            self._anchors[event.anchor] = text
        return text

    def _mapping(self, depth: int) -> YamlMapping:
        mapping: YamlMapping = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            line = get_line(event)
            key = self._value(event, depth + 1)
            if not isinstance(key, str):
                raise YamlError("a key that is not a scalar", line)
            value = self._value(next(self._events), depth + 1)
            if key in mapping:
                self._duplicates.append((key[:80], line))
            if not mapping.get(key):
                mapping[key] = value
        return mapping

    def _alias(self, event: yaml.AliasEvent, line: int) -> str:
        self._aliases += 1
        if self._aliases > self._limits.max_aliases:
            raise YamlError("too many aliases", line)
        if event.anchor not in self._anchors:
            raise YamlError("an alias that is not of a scalar", line)
        return self._anchors[event.anchor]


def replace_invalid_characters(text: str) -> str:
    """Replace lone surrogates, which escapes can produce, and NUL by U+FFFD."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")
