"""Lookup of frontmatter fields with several spellings of a key and strings or lists as values."""

from __future__ import annotations

import re

from skills.parsing.lenient_yaml import YamlMapping, YamlValue

MAX_ITEMS = 40
"""Maximum entries kept of a list field."""

MAX_ITEM_CHARACTERS = 200
"""Maximum characters kept of an entry."""

MAX_NAME_WORDS = 6
"""Maximum words of a skill's name; a longer text is taken for a sentence."""

_MAX_OTHER_FIELDS = 64

_OUTSIDE_BRACKETS = re.compile(r"(?:[^,;\n(]|\([^)\n]{0,200}\)?)+")
_TOOL = re.compile(r"[^\s,;(]+(?:\([^)\n]{0,200}\)?)?")
_VERSION = re.compile(r"\s*(?:[<>=~^!@]=?|\s\(?v?\d).*")
_NAME_KEYS = ("name", "skill", "id", "path", "tool", "package")


class FrontmatterFields:
    """A mapping looked up by normalised key: first at the top, then below `metadata`."""

    def __init__(self, values: YamlMapping) -> None:
        self._top = _normalised(values)
        inner = self._top.get("metadata")
        self._inner = _normalised(inner) if isinstance(inner, dict) else {}

    def get(self, *keys: str) -> YamlValue:
        """Return the first non-empty value under any of the keys, else an empty string."""
        for level in (self._top, self._inner):
            for key in keys:
                if value := level.get(key):
                    return value
        return ""

    def get_text(self, *keys: str) -> str:
        """Return a value as one line of text."""
        return " ".join(", ".join(flatten_value(self.get(*keys))).split())

    def get_list(self, *keys: str) -> tuple[str, ...]:
        """Return the entries of a list or of a text with commas, or the keys of a mapping."""
        value = self.get(*keys)
        if isinstance(value, str):
            return unique_texts(_OUTSIDE_BRACKETS.findall(value))
        if isinstance(value, dict):
            return unique_texts(list(value))
        return unique_texts([entry for item in value for entry in _named(item)])

    def get_scalars(self, *keys: str) -> tuple[str, ...]:
        """Every scalar under all of the keys, in their order; a text is split at commas."""
        found: list[str] = []
        for key in keys:
            value = self.get(key)
            found += self.get_list(key) if isinstance(value, str) else flatten_value(value)
        return unique_texts(found)

    def get_other_fields(self, known: frozenset[str]) -> dict[str, str]:
        """All values under other keys as dotted key -> text, limited in number and length."""
        found: dict[str, str] = {}
        rest = {key: value for key, value in self._top.items() if key not in known}
        _flatten(rest, "", found)
        return found


def flatten_value(value: YamlValue) -> list[str]:
    """Every scalar in a value, in order."""
    if isinstance(value, str):
        return [value] if value.strip() else []
    inner = value if isinstance(value, list) else list(value.values())
    return [text for item in inner for text in flatten_value(item)]


def parse_tool_names(value: YamlValue) -> tuple[str, ...]:
    """Parse tools from a list, or from a text with commas or blanks; `Bash(git log:*)` is one."""
    if isinstance(value, dict):
        return unique_texts(list(value))
    items = [value] if isinstance(value, str) else value
    names = [name for item in items for name in _named(item)]
    tools = [tool for name in names for tool in _TOOL.findall(name)]
    return unique_texts([tool for tool in tools if "*" in tool or any(map(str.isalnum, tool))])


def parse_skill_names(value: YamlValue) -> tuple[str, ...]:
    """Parse names of other skills from a list, a text with commas, or a mapping's `skills`.

    A mapping without `skills` lists packages or commands, and names no skill.
    """
    if isinstance(value, dict):
        inner = _normalised(value)
        return parse_skill_names(inner.get("skills") or inner.get("skill") or "")
    if isinstance(value, str):
        parts: list[str] = _OUTSIDE_BRACKETS.findall(value)
    else:
        parts = [entry for item in value for entry in _named(item)]
    plain = (" ".join(part[:MAX_ITEM_CHARACTERS].split()) for part in parts)
    names = [_VERSION.sub("", part).removeprefix("skill:") for part in plain]
    return unique_texts([name for name in names if len(name.split()) <= MAX_NAME_WORDS])


def unique_texts(texts: list[str]) -> tuple[str, ...]:
    """Strip blanks and quotes from the texts, and drop empty texts and repetitions."""
    seen: dict[str, None] = {}
    for text in texts:
        cleaned = " ".join(text.strip().strip("\"'`[]").split())[:MAX_ITEM_CHARACTERS].strip()
        if cleaned:
            seen.setdefault(cleaned)
        if len(seen) == MAX_ITEMS:
            break
    return tuple(seen)


def _named(item: YamlValue) -> list[str]:
    """Return the name of a list entry: the text itself, or the name in a mapping."""
    if isinstance(item, str):
        return [item]
    if isinstance(item, list):
        return flatten_value(item)
    inner = _normalised(item)
    for key in _NAME_KEYS:
        if isinstance(name := inner.get(key), str) and name:
            return [name]
    return list(item)[:1]


def _normalised(values: YamlMapping) -> YamlMapping:
    found: YamlMapping = {}
    for key, value in values.items():
        found.setdefault("-".join(key.lower().replace("_", " ").replace("-", " ").split()), value)
    return found


def _flatten(values: YamlMapping, prefix: str, found: dict[str, str]) -> None:
    for key, value in values.items():
        if len(found) >= _MAX_OTHER_FIELDS:
            return
        name = f"{prefix}{key}"[:100]
        if isinstance(value, dict):
            _flatten(value, f"{name}.", found)
        elif text := ", ".join(flatten_value(value))[: 2 * MAX_ITEM_CHARACTERS]:
            found[name.removeprefix("metadata.")] = text
