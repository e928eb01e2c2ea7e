"""Filter for lists of catalog entries, and counts of entries by their values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from graph.records import SkillState
from graph.skill_names import normalise_name
from skills.judgement import JUDGEMENT_RULE


class HasScripts(StrEnum):
    """Whether a skill has scripts.

    Unknown without a revision. Also unknown for a revision that a former version of skillbus
    published, until the reconciler has read it.
    """

    TRUE = "true"
    FALSE = "false"
    UNKNOWN = "unknown"

    @classmethod
    def of(cls, has_scripts: bool | None) -> HasScripts:
        """Convert the value of an entry."""
        return cls.UNKNOWN if has_scripts is None else cls.TRUE if has_scripts else cls.FALSE


@dataclass(frozen=True, slots=True)
class EntryFilter:
    """Filter of `Catalog.list_entries`: entries must match all fields; None matches any value.

    name: compared without regard to case and separators; matches none if it has only separators.
    safety_level: minimum scanner level. above_level: only published skills with a higher scanner
    level or with a judgement; can be combined only with source_id and rule. rule: of these skills,
    only those for which the catalog has a finding of this rule (see `Catalog.get_rules_version`),
    or a judgement.
    """

    source_id: str | None = None
    state: SkillState | None = None
    name: str | None = None
    above_level: int | None = None
    language: str | None = None
    licence: str | None = None
    safety_level: int | None = None
    has_scripts: HasScripts | None = None
    embedded: bool | None = None
    rule: str | None = None

    @property
    def statement(self) -> str:
        """Name of the statement that lists these entries."""
        if self.name is not None:
            return "list_entries_by_name"
        if self.above_level is None:
            return "list_entries" if self.state is None else "list_entries_in_state"
        if self.rule is None:
            return "list_entries_above_level"
        return "list_judged_entries" if self.rule == JUDGEMENT_RULE else "list_entries_of_rule"

    @property
    def conditions(self) -> list[str]:
        """Names of the further conditions on these entries."""
        names = ("language", "licence", "safety_level", "embedded")
        found = [name for name in names if getattr(self, name) is not None]
        if self.has_scripts is not None:
            is_unknown = self.has_scripts is HasScripts.UNKNOWN
            found.append("scripts_unknown" if is_unknown else "has_scripts")
        return found

    def id_range(self, after: str = "") -> tuple[str, str]:
        """Return the exclusive bounds of the skill_ids that match and sort after `after`.

        A skill_id begins with its source's id and a colon.
        """
        if self.source_id is None:
            return after, _AFTER_EVERY_ID
        return max(after, f"{self.source_id}:"), f"{self.source_id};"

    def to_parameters(self, after: str, limit: int) -> dict[str, object]:
        """Return the parameters of the statements that list entries."""
        first, end = self.id_range(after)
        return {
            "after": first,
            "end": end,
            "limit": limit,
            "state": None if self.state is None else self.state.value,
            "language": self.language,
            "licence": self.licence,
            "safety_level": self.safety_level,
            "has_scripts": self.has_scripts is HasScripts.TRUE,
            "embedded": self.embedded,
            "level": self.above_level,
            "rule": self.rule,
            "name_key": None if self.name is None else normalise_name(self.name),
        }


class EntryCount(NamedTuple):
    """Number of entries (`entries`) with these values; other fields are as in `CatalogEntry`."""

    source_id: str
    state: SkillState
    language: str
    licence: str
    safety_level: int
    has_scripts: bool | None
    embedded: bool
    entries: int


_AFTER_EVERY_ID = "\U0010ffff" * 201
"""Text that sorts after every skill_id: a source's id has at most 200 characters, then a colon."""
