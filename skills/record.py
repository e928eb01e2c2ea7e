"""A parsed skill at one revision: record, sections, passages, warnings and findings.

Lines are 1-based and inclusive, counted over the whole SKILL.md (frontmatter included).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeVar


class Role(StrEnum):
    """Role of a passage for the reader (SkillPager §3.1)."""

    STEP = "step"
    EXAMPLE = "example"
    PARAM = "param"
    PRECONDITION = "precondition"
    ERROR_HANDLING = "error_handling"
    CONCEPT = "concept"


class PassageKind(StrEnum):
    """The Markdown shape of a passage."""

    PARAGRAPH = "paragraph"
    LIST_ITEM = "list_item"
    TABLE = "table"
    CODE = "code"


class RevisionKey(NamedTuple):
    """A revision of a skill; documents are written once under this key."""

    skill_id: str
    seq: int

    def __str__(self) -> str:
        return f"{self.skill_id}@{self.seq}"


def get_source_id(skill_id: str) -> str:
    """Return the id of a skill's source."""
    return skill_id.partition(":")[0]


class _Revised(Protocol):
    @property
    def key(self) -> RevisionKey: ...


_OfRevision = TypeVar("_OfRevision", bound=_Revised)


def select_latest_revisions(items: Iterable[_OfRevision]) -> dict[str, _OfRevision]:
    """Return the item with the highest seq of each skill, by skill_id in order of occurrence."""
    newest: dict[str, _OfRevision] = {}
    for one in items:
        if one.key.seq > newest.setdefault(one.key.skill_id, one).key.seq:
            newest[one.key.skill_id] = one
    return newest


@dataclass(frozen=True, slots=True)
class ParseWarning:
    """A defect of a file that was parsed nevertheless; `line` 0 means the whole file."""

    code: str
    line: int
    message: str


@dataclass(frozen=True, slots=True)
class SafetyFinding:
    """A finding of the scanner. `level` 1 is minor, 2 suspicious, 3 dangerous.

    `file` is the path of another file of the folder, "" for SKILL.md itself.
    """

    kind: str
    level: int
    line: int
    reason: str
    file: str = ""


@dataclass(frozen=True, slots=True)
class SiblingFile:
    """Another file of the skill's folder; `path` is relative to the folder, with `/`."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Section:
    """The text from a heading to the next heading; scored as a unit.

    `heading_path` starts at the H1. `level` and `heading_line` are 0 for the text before the first
    heading. `first_line` is the line of the heading, if the section has a heading.
    """

    index: int
    heading_path: tuple[str, ...]
    level: int
    heading_line: int
    first_line: int
    last_line: int


@dataclass(frozen=True, slots=True)
class Passage:
    """A typed range of lines; selected and sent as a unit.

    `language` is the language of a code block. `lead_in` is the index of the passage that
    introduces this passage's list or block, -1 without one.
    """

    index: int
    section: int
    kind: PassageKind
    role: Role
    confidence: float
    first_line: int
    last_line: int
    tokens: int
    language: str = ""
    lead_in: int = -1

    def with_role(self, role: Role, confidence: float) -> Passage:
        """Return the passage with another role; several times as fast as `dataclasses.replace`."""
        return Passage(
            self.index,
            self.section,
            self.kind,
            role,
            confidence,
            self.first_line,
            self.last_line,
            self.tokens,
            self.language,
            self.lead_in,
        )


@dataclass(frozen=True, slots=True)
class Completion:
    """Texts that a language model wrote about a skill; kept separate from the parsed fields.

    stage, model, version: the stage, its model and the version of its prompt. fields: texts by
    field, such as `inputs` or `prompts`; a field without texts is left out.
    """

    stage: str
    model: str
    version: int
    fields: dict[str, tuple[str, ...]]

    @property
    def origin(self) -> str:
        """Stage, version and model as text; completions of different origins are never mixed."""
        return completion_origin(self.stage, self.version, self.model)


def completion_origin(stage: str, version: int, model: str) -> str:
    """Return the origin of completions of this stage, version of the prompt, and model."""
    return f"{stage}/{version}/{model}"


@dataclass(frozen=True, slots=True)
class SkillRecord:
    """The normalised record of a skill (Graph of Skills table 5).

    scanner: version of the scanner that made the findings (`SCANNER_VERSION`). completions: texts
    that a language model added, at most one completion per stage.
    """

    name: str
    description: str
    capability: str
    when_to_use: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    domain_tags: tuple[str, ...] = ()
    tooling: tuple[str, ...] = ()
    example_tasks: tuple[str, ...] = ()
    entrypoints: tuple[str, ...] = ()
    compatibility: str = ""
    allowed_tools: tuple[str, ...] = ()
    depends: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    licence: str = ""
    version: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    language: str = "en"
    tokens: int = 0
    code_share: float = 0.0
    files: tuple[SiblingFile, ...] = ()
    safety_level: int = 0
    safety: tuple[SafetyFinding, ...] = ()
    scanner: int = 0
    completions: tuple[Completion, ...] = ()

    @property
    def has_scripts(self) -> bool:
        """Whether the folder has scripts."""
        return bool(self.entrypoints)


@dataclass(frozen=True, slots=True)
class ParsedSkill:
    """A parsed SKILL.md: its record, lines, sections and passages.

    `lines` are the lines of the whole file without line ends; `lines[n - 1]` is line n.
    `body_line` is the first line after the frontmatter.
    """

    record: SkillRecord
    lines: tuple[str, ...]
    body_line: int
    sections: tuple[Section, ...]
    passages: tuple[Passage, ...]
    warnings: tuple[ParseWarning, ...] = ()

    def text(self, first_line: int, last_line: int) -> str:
        """Return the text of a line range, unchanged."""
        return "\n".join(self.lines[first_line - 1 : last_line])

    def with_completions(self, completions: tuple[Completion, ...]) -> ParsedSkill:
        """Return the skill with its completions replaced."""
        if self.record.completions == completions:
            return self
        return replace(self, record=replace(self.record, completions=completions))
