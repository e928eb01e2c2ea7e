"""Checks a SKILL.md against the Agent Skills specification, before it is served unchanged.

Ingest also reads files that break the format; an interface that promises the format leaves them out
and states the reason. See https://agentskills.io/specification.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from config.errors import PermanentError
from skills.parsing.json_yaml import JsonValue, parse_json_yaml
from skills.parsing.strict_yaml import DEFAULT_LIMITS, YamlError
from skills.skill_uri import is_skill_name

MAX_DESCRIPTION_CHARACTERS = 1_024
MAX_COMPATIBILITY_CHARACTERS = 500
_FENCE = "---"


class FormatError(PermanentError):
    """A skill breaks the Agent Skills specification; the message names the defect."""


@dataclass(frozen=True, slots=True)
class AgentSkill:
    """A frontmatter that follows the specification.

    frontmatter: every field that the author wrote, in that order, as JSON values.
    """

    name: str
    description: str
    frontmatter: dict[str, JsonValue]


def read_agent_skill(lines: Sequence[str]) -> AgentSkill:
    """Read the frontmatter of a SKILL.md, given as lines without line ends.

    Raises FormatError unless the file begins with a YAML mapping between `---` lines whose `name`,
    `description` and `compatibility` follow the specification.
    """
    frontmatter = _read_mapping(lines)
    name, description = frontmatter.get("name"), frontmatter.get("description")
    if not isinstance(name, str) or not is_skill_name(name):
        raise FormatError("its name is not 1 to 64 of a-z, 0-9 and single hyphens between them")
    if not isinstance(description, str) or not description.strip():
        raise FormatError("it has no description")
    _check_length("description", description, MAX_DESCRIPTION_CHARACTERS)
    compatibility = frontmatter.get("compatibility")
    if isinstance(compatibility, str):
        _check_length("compatibility", compatibility, MAX_COMPATIBILITY_CHARACTERS)
    return AgentSkill(name, description, frontmatter)


def _read_mapping(lines: Sequence[str]) -> dict[str, JsonValue]:
    if not lines or lines[0].rstrip() != _FENCE:
        raise FormatError("it does not begin with a frontmatter (`---`)")
    end = next((at for at, line in enumerate(lines[1:], 1) if line.rstrip() == _FENCE), None)
    if end is None:
        raise FormatError("its frontmatter has no closing `---`")
    try:
        value = parse_json_yaml("\n".join(lines[1:end]), DEFAULT_LIMITS)
    except YamlError as error:
        where = f"{error.reason}, line {error.line + 2}"
        raise FormatError(f"its frontmatter is not YAML that JSON can hold ({where})") from error
    if not isinstance(value, dict):
        raise FormatError("its frontmatter is not a mapping")
    return value


def _check_length(field: str, text: str, limit: int) -> None:
    if len(text) > limit:
        raise FormatError(f"its {field} has {len(text)} characters; {limit} are allowed")
