"""Safe parser of strict YAML: scalars stay strings; aliases, depth and size are limited."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from typing_extensions import override

from skills.parsing.lenient_yaml import YamlMapping, YamlValue

_Loader: type[yaml.BaseLoader] | type[yaml.CBaseLoader]
_Loader = yaml.CBaseLoader if yaml.__with_libyaml__ else yaml.BaseLoader


@dataclass(frozen=True, slots=True)
class YamlLimits:
    """Limits of a frontmatter: characters, levels of nesting, uses of aliases, values."""

    max_characters: int = 131_072
    max_depth: int = 20
    max_aliases: int = 50
    max_values: int = 20_000


DEFAULT_LIMITS = YamlLimits()


class YamlError(Exception):
    """The text is not YAML within the limits; `line` counts from 0."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """The mapping of a document, None if it is not a mapping, and (duplicate key, line) pairs."""

    mapping: YamlMapping | None
    duplicates: list[tuple[str, int]]


def parse_strict_yaml(text: str, limits: YamlLimits) -> YamlDocument:
    """Parse the first document of a YAML text; an empty document is an empty mapping.

    The first non-empty value of a duplicate key is kept. An alias may only refer to a scalar.
    Raises YamlError.
    """
    reader = _TextReader(parse_events(text), limits)
    value = reader.read_document()
    if value in ("", None):
        value = {}
    return YamlDocument(value if isinstance(value, dict) else None, reader.duplicates)


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


class EventReader(ABC):
    """Builds plain values from parse events, within limits. Subclasses convert the scalars, and
    decide about tags and duplicate keys."""

    def __init__(self, events: Iterator[yaml.Event], limits: YamlLimits) -> None:
        self._events = events
        self._limits = limits
        self._anchors: dict[str, Any] = {}
        self._aliases = 0
        self._values = 0

    def read_document(self) -> Any:
        """Return the value of the first document, None without one. Raises YamlError."""
        for event in self._events:
            if not isinstance(event, yaml.StreamStartEvent | yaml.DocumentStartEvent):
                return None if isinstance(event, yaml.StreamEndEvent) else self._read(event, 0)
        return None

    @abstractmethod
    def read_scalar(self, event: yaml.ScalarEvent) -> Any:
        """Return the value of a scalar."""

    @abstractmethod
    def check_collection(self, event: yaml.CollectionStartEvent) -> None:
        """Raise YamlError for a list or mapping that is not allowed."""

    @abstractmethod
    def add_pair(self, mapping: dict[str, Any], key: str, value: Any, line: int) -> None:
        """Add a pair to a mapping, which may have the key."""

    def _read(self, event: yaml.Event, depth: int) -> Any:
        self._values += 1
        if depth > self._limits.max_depth or self._values > self._limits.max_values:
            raise YamlError("nested too deeply or too many values", get_line(event))
        if isinstance(event, yaml.AliasEvent):
            return self._read_alias(event)
        if isinstance(event, yaml.ScalarEvent):
            value = self.read_scalar(event)
            if event.anchor:
                self._anchors[event.anchor] = value
            return value
        if isinstance(event, yaml.CollectionStartEvent):
            self.check_collection(event)
        if isinstance(event, yaml.MappingStartEvent):
            return self._read_mapping(depth)
        items = []
        while not isinstance(inner := next(self._events), yaml.SequenceEndEvent):
            items.append(self._read(inner, depth + 1))
        return items

    def _read_mapping(self, depth: int) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._read(event, depth + 1)
            if not isinstance(key, str):
                raise YamlError("a key that is not a text", get_line(event))
            value = self._read(next(self._events), depth + 1)
            self.add_pair(mapping, key, value, get_line(event))
        return mapping

    def _read_alias(self, event: yaml.AliasEvent) -> Any:
        self._aliases += 1
        if self._aliases > self._limits.max_aliases:
            raise YamlError("too many aliases", get_line(event))
        if event.anchor not in self._anchors:
            raise YamlError("an alias that is not of a scalar", get_line(event))
        return self._anchors[event.anchor]


class _TextReader(EventReader):
    """Keeps scalars as texts, and the first non-empty value of a duplicate key."""

    def __init__(self, events: Iterator[yaml.Event], limits: YamlLimits) -> None:
        super().__init__(events, limits)
        self.duplicates: list[tuple[str, int]] = []

    @override
    def read_scalar(self, event: yaml.ScalarEvent) -> str:
        text = replace_invalid_characters(event.value)
        is_null = event.implicit[0] and not event.style and text in ("null", "~", "Null", "NULL")
        return "" if is_null else text

    @override
    def check_collection(self, event: yaml.CollectionStartEvent) -> None:
        """Allow all, with any tag."""

    @override
    def add_pair(self, mapping: YamlMapping, key: str, value: YamlValue, line: int) -> None:
        if key in mapping:
            self.duplicates.append((key[:80], line))
        if not mapping.get(key):
            mapping[key] = value


def replace_invalid_characters(text: str) -> str:
    """Replace lone surrogates, which escapes can produce, and NUL by U+FFFD."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")
