"""Finds and parses the frontmatter of a SKILL.md, even if it is malformed.

Every scalar is a string (`yes` stays "yes"). Values are strings, lists and mappings with string
keys. A frontmatter that is not strict YAML is parsed line by line.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field

from skills.parsing.decoding import find_conflict_markers
from skills.parsing.lenient_yaml import YamlMapping, YamlValue, parse_lenient_yaml
from skills.parsing.strict_yaml import (
    YamlError,
    YamlLimits,
    parse_strict_yaml,
    replace_invalid_characters,
)
from skills.record import ParseWarning

_MAX_PREAMBLE_LINES = 60
"""Non-blank lines searched for a frontmatter that does not open the file."""

# The TOML parser takes time quadratic in the length of a dotted key.
_TOML_LENGTH = 8_192

_PAIR = re.compile(r"^([\w-]{1,60})[ \t]*=[ \t]*", re.MULTILINE)
_KEY = re.compile(r"[\"']?[^\W\d][\w .-]{0,60}?[\"']?\s*:(?:\s|$)")
_WANTED = re.compile(r"[\"']?(?:name|description)[\"']?\s*:(?:\s|$)")
_FENCE_OPEN = re.compile(r"\s{0,3}(?:`{3,}|~{3,})\s*[\w-]*\s*")


@dataclass(slots=True)
class Frontmatter:
    """The parsed mapping, the first line of the body (1-based) and the warnings."""

    values: YamlMapping = field(default_factory=dict)
    body_line: int = 1
    warnings: list[ParseWarning] = field(default_factory=list)

    def warn(self, code: str, line: int, message: str) -> None:
        """Add a warning."""
        self.warnings.append(ParseWarning(code, line, message))


@dataclass(frozen=True, slots=True)
class _FrontmatterBlock:
    """Location of a frontmatter: its mapping is in lines `first` to `last` (1-based, inclusive)."""

    first: int
    last: int
    body_line: int
    syntax: str = "yaml"


def parse_frontmatter(lines: Sequence[str], limits: YamlLimits) -> Frontmatter:
    """Parse the frontmatter of a file; without one, values are empty and all lines are body."""
    found = Frontmatter()
    block = _locate(lines, found, limits)
    if block is None:
        found.warn("no_frontmatter", 1, "no frontmatter")
        return found
    values = _read(lines, block, found, limits)
    if not values and _text(lines, block).strip():
        found.warn("frontmatter_unreadable", block.first, "no `key: value` in the frontmatter")
        return found
    found.values, found.body_line = values, block.body_line
    _merge_second(lines, found, limits)
    return found


def _merge_second(lines: Sequence[str], found: Frontmatter, limits: YamlLimits) -> None:
    """Merge a second frontmatter right after the first, whose values take precedence."""
    at = _skip_blank(lines, found.body_line)
    if at > len(lines) or lines[at - 1].rstrip() != "---":
        return
    last = _find_closing(lines, at + 1, "---")
    if last and _looks_like_mapping(lines, at + 1, last - 1):
        found.warn("frontmatter_doubled", at, "a second frontmatter follows the first")
        block = _FrontmatterBlock(at + 1, last - 1, last + 1)
        found.values = {**_read(lines, block, found, limits), **found.values}
        found.body_line = block.body_line


# -- locating


def _locate(
    lines: Sequence[str], found: Frontmatter, limits: YamlLimits
) -> _FrontmatterBlock | None:
    at = _skip_blank(lines, 1)
    if at > len(lines):
        return None
    opening = lines[at - 1].rstrip()
    if opening == "+++":
        last = _find_closing(lines, at + 1, "+++")
        return _FrontmatterBlock(at + 1, last - 1, last + 1, "toml") if last else None
    if opening.lstrip() == "{" or opening.startswith('{"'):
        return _json_block(lines, at)
    if opening == "---":
        return _find_delimited(lines, at, found, limits)
    if _WANTED.match(opening):
        return _find_unopened(lines, at, found)
    return _find_after_preamble(lines, at, found)


def _find_delimited(
    lines: Sequence[str], at: int, found: Frontmatter, limits: YamlLimits
) -> _FrontmatterBlock | None:
    """Return the block that the `---` in line `at` opens."""
    last = _find_closing(lines, at + 1, "---")
    end = _find_mapping_end(lines, at + 1)
    if last:
        block = _FrontmatterBlock(at + 1, last - 1, last + 1)
        swallows = end < last - 1 and _swallows_body(lines, at, last)
        if not swallows or _is_strict_mapping(_text(lines, block), limits):
            return block
    if end <= at:
        return None
    found.warn("frontmatter_unclosed", at, "the frontmatter has no closing `---`")
    return _FrontmatterBlock(at + 1, end, end + 1)


def _swallows_body(lines: Sequence[str], at: int, last: int) -> bool:
    """Return whether the closing `---` is a thematic break of the body, with Markdown before it."""
    between = lines[at : last - 1]
    blank = False
    for line in between:
        if line.startswith(("## ", "# ", "### ", "```")) and blank:
            return True
        blank = not line.strip()
    return False


def _is_strict_mapping(text: str, limits: YamlLimits) -> bool:
    """Return whether a text is a mapping in strict YAML, where a heading is a comment."""
    try:
        return len(text) <= limits.max_characters and bool(parse_strict_yaml(text, limits).mapping)
    except YamlError:
        return False


def _find_unopened(lines: Sequence[str], at: int, found: Frontmatter) -> _FrontmatterBlock | None:
    """Return the block of a mapping at the top of the file that lacks its opening `---`."""
    end = _find_mapping_end(lines, at)
    found.warn("frontmatter_unopened", at, "the frontmatter has no opening `---`")
    after = _skip_blank(lines, end + 1)
    closed = after <= len(lines) and lines[after - 1].rstrip() == "---"
    return _FrontmatterBlock(at, end, after + 1 if closed else end + 1)


def _find_after_preamble(
    lines: Sequence[str], at: int, found: Frontmatter
) -> _FrontmatterBlock | None:
    """Return the block of a frontmatter after comments, headings, conflict markers or a fence."""
    number, seen, fence = at, 0, 0
    while number <= len(lines) and seen < _MAX_PREAMBLE_LINES:
        line = lines[number - 1]
        seen += 1
        if line.rstrip() == "---":
            last = _find_closing(lines, number + 1, "---")
            if last and _looks_like_mapping(lines, number + 1, last - 1):
                return _warn_misplaced(
                    lines, _FrontmatterBlock(number + 1, last - 1, last + 1), fence, found
                )
        elif fence and number == fence + 1 and _WANTED.match(line):
            end = _find_mapping_end(lines, number)
            return _warn_misplaced(lines, _FrontmatterBlock(number, end, end + 1), fence, found)
        elif line.lstrip().startswith("<!--"):
            while number < len(lines) and "-->" not in lines[number - 1]:
                number += 1
        elif _FENCE_OPEN.fullmatch(line) and not fence:
            fence = number
        elif not (line.startswith(("#", "<<<<<<<", "=======", ">>>>>>>")) or line.strip() == "---"):
            return None
        number = _skip_blank(lines, number + 1)
    return None


def _warn_misplaced(
    lines: Sequence[str], block: _FrontmatterBlock, fence: int, found: Frontmatter
) -> _FrontmatterBlock:
    """Add a warning about a misplaced block, and skip a closing fence right after it."""
    if fence:
        found.warn("frontmatter_fenced", fence, "the frontmatter stands in a code fence")
        after = _skip_blank(lines, block.body_line)
        if after <= len(lines) and lines[after - 1].strip() in ("```", "~~~", "````"):
            return _FrontmatterBlock(block.first, block.last, after + 1)
    else:
        found.warn("frontmatter_not_first", block.first - 1, "text stands before the frontmatter")
    return block


def _json_block(lines: Sequence[str], at: int) -> _FrontmatterBlock | None:
    text = "\n".join(lines[at - 1 : at + 400])
    try:
        value, end = json.JSONDecoder().raw_decode(text.lstrip())
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    last = at + text.lstrip()[:end].count("\n")
    return _FrontmatterBlock(at, last, last + 1, "json")


def _find_closing(lines: Sequence[str], start: int, mark: str) -> int:
    """Return the line of the closing mark, 0 without one."""
    for number in range(start, len(lines) + 1):
        if lines[number - 1].startswith(mark) and lines[number - 1].rstrip() == mark:
            return number
    return 0


def _skip_blank(lines: Sequence[str], number: int) -> int:
    while number <= len(lines) and not lines[number - 1].strip():
        number += 1
    return number


def _find_mapping_end(lines: Sequence[str], start: int) -> int:
    """Return the last line from `start` on that can belong to a block mapping."""
    last = start - 1
    keyed = False
    for number in range(start, len(lines) + 1):
        line = lines[number - 1]
        if not line.strip():
            continue
        if _KEY.match(line):
            keyed = True
        elif not keyed or not _continues(line, after_blank=not lines[number - 2].strip()):
            break
        last = number
    return last


def _continues(line: str, after_blank: bool) -> bool:
    """Return whether a line can continue a mapping: indented, or an item of an unindented list."""
    if line.startswith("- "):
        return not after_blank and not line.startswith("- **")
    return line.startswith((" ", "\t"))


def _looks_like_mapping(lines: Sequence[str], first: int, last: int) -> bool:
    """Return whether lines look like a mapping.

    They need a key `name` or `description`, and at least half of them must be `key: value`.
    Indented lines, comments and list items are not counted.
    """
    if last < first or last - first > 400:
        return False
    block = lines[first - 1 : last]
    keys = [line for line in block if line.strip() and not line.startswith((" ", "\t", "#", "-"))]
    wanted = any(_WANTED.match(line) for line in keys)
    return wanted and sum(1 for line in keys if _KEY.match(line)) * 2 >= len(keys)


# -- reading


def _text(lines: Sequence[str], block: _FrontmatterBlock) -> str:
    return "\n".join(lines[block.first - 1 : block.last])


def _read(
    lines: Sequence[str], block: _FrontmatterBlock, found: Frontmatter, limits: YamlLimits
) -> YamlMapping:
    kept = _drop_conflicts(lines[block.first - 1 : block.last], block.first, found)
    text = "\n".join(kept)
    if len(text) > limits.max_characters:
        found.warn("frontmatter_long", block.first, "the frontmatter was cut at its size limit")
        text = text[: limits.max_characters]
    if block.syntax != "yaml":
        return _parse_toml_or_json(text, block, found)
    try:
        strict = parse_strict_yaml(text, limits)
    except YamlError as error:
        line = min(block.first + error.line, block.last)
        found.warn("frontmatter_yaml", line, f"not valid YAML ({error.reason}); read line by line")
        return parse_lenient_yaml(text.split("\n"))
    for key, line in strict.duplicates:
        found.warn("duplicate_key", block.first + line, f"`{key}` is given twice")
    if strict.mapping is None:
        found.warn("frontmatter_not_mapping", block.first, "the frontmatter is not a mapping")
        return {}
    return strict.mapping


def _drop_conflicts(block: Sequence[str], first: int, found: Frontmatter) -> list[str]:
    """Return the lines without conflict markers and without the second side of each conflict."""
    marks = find_conflict_markers(block)
    if not marks:
        return list(block)
    found.warn("conflict_marks", first + marks[0] - 1, "unresolved merge; our side was read")
    kept: list[str] = []
    ours, numbers = True, frozenset(marks)
    for number, line in enumerate(block, 1):
        if number in numbers:
            ours = not line.startswith(("=", "|"))
        elif ours:
            kept.append(line)
    return kept


def _parse_toml_or_json(text: str, block: _FrontmatterBlock, found: Frontmatter) -> YamlMapping:
    """Parse a frontmatter in TOML or JSON; an invalid one is parsed line by line."""
    if block.syntax == "toml":
        text = text[:_TOML_LENGTH]
    try:
        read = tomllib.loads(text) if block.syntax == "toml" else json.loads(text)
        values = {
            replace_invalid_characters(str(key)): _to_yaml_value(value, 8)
            for key, value in read.items()
        }
    except (ValueError, RecursionError) as error:
        reason = str(error)[:100]
        found.warn(f"frontmatter_{block.syntax}", block.first, f"not valid: {reason}")
        return parse_lenient_yaml(_PAIR.sub(r"\1: ", text).split("\n"))
    found.warn("frontmatter_foreign", block.first, f"the frontmatter is {block.syntax}, not YAML")
    return values


def _to_yaml_value(value: object, depth: int) -> YamlValue:
    """Convert all scalars of a value to strings; levels below `depth` are dropped."""
    if isinstance(value, dict):
        inner = value.items() if depth else ()
        return {
            replace_invalid_characters(str(key)): _to_yaml_value(item, depth - 1)
            for key, item in inner
        }
    if isinstance(value, list):
        return [_to_yaml_value(item, depth - 1) for item in value] if depth else []
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else replace_invalid_characters(str(value))
