"""The normalised record of a skill, from its frontmatter and its fragments.

The fields are those of Graph of Skills (table 5): what a skill can do, what goes in and comes
out, and the words by which a task may name it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from skills import licences
from skills.parsing import tooling
from skills.parsing.front_matter_fields import Fields, flat, skill_names, tool_names, unique
from skills.parsing.language import detect
from skills.record import (
    BlockKind,
    ParseWarning,
    Passage,
    SafetyFinding,
    Section,
    SiblingFile,
    SkillRecord,
)
from skills.scanner import SCANNER

NAME_LENGTH = 64
DESCRIPTION_LENGTH = 1024
"""The Agent Skills specification's limits; what is longer is kept and marked."""

_CAPABILITY_LENGTH = 240
_SECTION_LENGTH = 1_000
_PROSE_SAMPLE = 20_000
_SECTION_ITEMS = 12

_KNOWN = frozenset(
    {"name", "description", "license", "licence", "version", "compatibility", "allowed-tools"}
)
_DEPENDS = (
    "depends",
    "depends-on",
    "requires",
    "dependencies",
    "prerequisites",
    "required-skills",
    "requires-skills",
    "prerequisite-skills",
    "skill-dependencies",
)
_CONFLICTS = ("conflicts", "conflicts-with", "incompatible", "incompatible-with")
_TAGS = ("tags", "keywords", "category", "categories", "domain", "subdomain", "topics")

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[^\sa-z])|(?<=[。！？])")
_WHEN = re.compile(
    r"\b(?:use|invoke|trigger|activate|apply)s?\b[^.]{0,60}?\b(?:when|whenever|if|for|on|to)\b"
    r"|\bwhen (?:the|a) user\b|\btriggers?\b|适用|当用户|触发|用于",
    re.IGNORECASE,
)
_WHEN_HEADING = re.compile(
    r"\bwhen to (?:use|apply)\b|\buse cases?\b|何时使用|适用场景|使用场景", re.I
)
_HEADING_END = r"(?:\s*(?:$|[:(/&,]|and\b|required|needed|expected|parameters?|formats?|files?))"
_INPUT_HEADING = re.compile(rf"^(?:required )?inputs?{_HEADING_END}|^输入", re.I)
_OUTPUT_HEADING = re.compile(
    rf"^(?:expected )?(?:outputs?|deliverables?){_HEADING_END}|^输出", re.I
)
_EXAMPLE_HEADING = re.compile(
    r"\bexample (?:tasks?|prompts?|requests?|queries|commands)\b|示例任务|示例提问", re.I
)
_ITEM_MARK = re.compile(r"\s*(?:[-*+•]|\d{1,9}[.)])\s+(?:\[[ xX]\]\s+)?")
_TERM_END = re.compile(r"\s+[-–—:]\s|[:：]|\s\(")


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a skill as its fragments give it."""

    lines: Sequence[str]
    body_line: int
    sections: Sequence[Section]
    passages: Sequence[Passage]

    def text(self, first: int, last: int) -> str:
        """The text of a line range."""
        return "\n".join(self.lines[first - 1 : last])

    def prose(self) -> str:
        """The head of the body without its code."""
        parts: list[str] = []
        size = 0
        for passage in self.passages:
            if passage.kind is not BlockKind.CODE:
                parts.append(self.text(passage.first_line, passage.last_line))
                size += len(parts[-1])
            if size > _PROSE_SAMPLE:
                break
        return "\n".join(parts)[:_PROSE_SAMPLE]

    def under(self, heading: re.Pattern[str]) -> list[Passage]:
        """The passages of the first section with such a heading."""
        for section in self.sections:
            if section.heading_line and heading.search(section.heading_path[-1]):
                return [item for item in self.passages if item.section == section.index]
        return []

    def items(self, heading: re.Pattern[str]) -> list[str]:
        """The first lines of the list items below such a heading, without list marks."""
        lines = [
            _ITEM_MARK.sub("", self.lines[passage.first_line - 1], count=1)
            for passage in self.under(heading)
            if passage.kind is BlockKind.LIST_ITEM
        ]
        return [
            line[:300].replace("**", "").replace("`", "").strip() for line in lines[:_SECTION_ITEMS]
        ]


def normalise(
    path: str,
    fields: Fields,
    body: Body,
    files: Sequence[SiblingFile],
    safety: tuple[SafetyFinding, ...],
    terms: str = "",
) -> tuple[SkillRecord, list[ParseWarning]]:
    """The record of the skill whose folder is `path`, and what had to be made up for it.

    terms: the text of the licence file beside it.
    """
    warnings: list[ParseWarning] = []
    name = _name(path, fields, warnings)
    description = _description(name, fields, body, warnings)
    tokens = sum(passage.tokens for passage in body.passages) + _heading_tokens(body)
    code = sum(passage.tokens for passage in body.passages if passage.kind is BlockKind.CODE)
    record = SkillRecord(
        name=name,
        description=description,
        capability=_capability(description),
        when_to_use=_when_to_use(fields, description, body),
        inputs=fields.items("inputs", "input") or _terms(body.items(_INPUT_HEADING)),
        outputs=fields.items("outputs", "output") or _terms(body.items(_OUTPUT_HEADING)),
        domain_tags=fields.scalars(*_TAGS),
        tooling=tooling.mentioned(fields, body.lines, body.passages, f"{name} {description}"),
        example_tasks=_examples(fields, body),
        entrypoints=tooling.entrypoints(files),
        compatibility=fields.text("compatibility", "compatible-with"),
        allowed_tools=tool_names(fields.get("allowed-tools", "tools", "allowedtools")),
        depends=unique([name for key in _DEPENDS for name in skill_names(fields.get(key))]),
        conflicts=unique([name for key in _CONFLICTS for name in skill_names(fields.get(key))]),
        licence=licences.stated(fields.text("license", "licence")[:200], terms),
        version=fields.text("version")[:60],
        metadata=fields.flattened(_KNOWN),
        language=detect(f"{description}\n{body.prose()}"),
        tokens=tokens,
        code_share=round(code / tokens, 4) if tokens else 0.0,
        files=tuple(sorted(files, key=lambda file: file.path)),
        safety_level=max((finding.level for finding in safety), default=0),
        safety=safety,
        scanner=SCANNER,
    )
    return record, warnings


def _heading_tokens(body: Body) -> int:
    return sum(tooling.heading_tokens(section) for section in body.sections)


def _name(path: str, fields: Fields, warnings: list[ParseWarning]) -> str:
    value = fields.get("name")
    texts = flat(value)
    if not isinstance(value, str):
        warnings.append(ParseWarning("name_not_text", 1, "the name is not a text"))
    name = " ".join(texts[0].split()) if texts else ""
    if not name:
        name = path.rstrip("/").rsplit("/", 1)[-1] or "skill"
        warnings.append(ParseWarning("name_missing", 1, "no name; the folder's name is taken"))
    if len(name) > NAME_LENGTH:
        warnings.append(ParseWarning("name_long", 1, f"the name has {len(name)} characters"))
    return name[: 4 * NAME_LENGTH]


def _description(name: str, fields: Fields, body: Body, warnings: list[ParseWarning]) -> str:
    value = fields.get("description")
    if not isinstance(value, str):
        warnings.append(ParseWarning("description_not_text", 1, "the description is not a text"))
    description = " ".join(" ".join(flat(value)).split())
    if not description:
        warnings.append(ParseWarning("description_missing", 1, "no description; the first words"))
        description = _first_words(body) or name
    if len(description) > DESCRIPTION_LENGTH:
        message = f"the description has {len(description)} characters"
        warnings.append(ParseWarning("description_long", 1, message))
    return description


def _first_words(body: Body) -> str:
    """The first paragraph that is running text, else the first heading or line of anything."""
    for passage in body.passages:
        text = body.text(passage.first_line, passage.last_line)
        plain = " ".join(text.strip().lstrip("> ").split())
        if passage.kind is BlockKind.PARAGRAPH and len(plain) > 20 and plain[0] not in "<![|-":
            return plain[:DESCRIPTION_LENGTH]
    titles = (title for section in body.sections for title in section.heading_path)
    lines = (" ".join(line.split()) for line in body.lines[body.body_line - 1 :] if line.strip())
    return (next(titles, "") or next(lines, ""))[:DESCRIPTION_LENGTH]


def _capability(description: str) -> str:
    """The first sentence of the description."""
    sentence = _SENTENCE_END.split(description, maxsplit=1)[0].strip()
    if len(sentence) <= _CAPABILITY_LENGTH:
        return sentence
    cut = sentence[:_CAPABILITY_LENGTH]
    return f"{cut.rsplit(' ', 1)[0] if ' ' in cut[100:] else cut}…"


def _when_to_use(fields: Fields, description: str, body: Body) -> str:
    stated = fields.text("when-to-use", "trigger", "triggers", "use-when")
    if stated:
        return stated[:_SECTION_LENGTH]
    sentences = _SENTENCE_END.split(description)
    found = [sentence.strip() for sentence in sentences if _WHEN.search(sentence)]
    if found:
        return " ".join(found)[:_SECTION_LENGTH]
    passages = body.under(_WHEN_HEADING)
    if not passages:
        return ""
    return body.text(passages[0].first_line, passages[-1].last_line)[:_SECTION_LENGTH].strip()


def _terms(items: Sequence[str]) -> tuple[str, ...]:
    """What each item is about: its text before a colon, a dash or a bracket."""
    return unique([_TERM_END.split(item, maxsplit=1)[0][:80] for item in items])


def _examples(fields: Fields, body: Body) -> tuple[str, ...]:
    stated = fields.items("example-tasks", "examples", "example-prompts", "triggers")
    return stated or unique(body.items(_EXAMPLE_HEADING))
