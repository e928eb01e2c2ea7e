"""Normalised record of a skill, built from its frontmatter and its fragments.

The fields are those of Graph of Skills (table 5): capability, inputs and outputs, and terms with
which a task may refer to the skill.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from skills import licences
from skills.parsing import tooling
from skills.parsing.front_matter_fields import (
    FrontmatterFields,
    flatten_value,
    parse_skill_names,
    parse_tool_names,
    unique_texts,
)
from skills.parsing.language_detection import detect_language
from skills.record import (
    ParseWarning,
    Passage,
    PassageKind,
    SafetyFinding,
    Section,
    SiblingFile,
    SkillRecord,
)
from skills.scanner import SCANNER_VERSION
from skills.token_count import count_tokens

MAX_NAME_CHARACTERS = 64
MAX_DESCRIPTION_CHARACTERS = 1024
"""Limits of the Agent Skills specification; longer values are kept, with a warning."""

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
_ITEM_MARK = re.compile(
    r"^\s*(?:(?:[-*+•]|\d{1,9}[.)])\s+|\d{1,3}[、.．](?=[^\d\s]))(?:\[[ xX]\]\s+)?"
)
_TERM_END = re.compile(r"\s+[-–—:]\s|[:：]|\s\(")


@dataclass(frozen=True, slots=True)
class SkillBody:
    """The body of a skill: lines, sections and passages."""

    lines: Sequence[str]
    body_line: int
    sections: Sequence[Section]
    passages: Sequence[Passage]

    def text(self, first: int, last: int) -> str:
        """Return the text of a line range."""
        return "\n".join(self.lines[first - 1 : last])

    def prose(self) -> str:
        """Return the beginning of the body without code, at most _PROSE_SAMPLE characters."""
        parts: list[str] = []
        size = 0
        for passage in self.passages:
            if passage.kind is not PassageKind.CODE:
                parts.append(self.text(passage.first_line, passage.last_line))
                size += len(parts[-1])
            if size > _PROSE_SAMPLE:
                break
        return "\n".join(parts)[:_PROSE_SAMPLE]

    def get_section_passages(self, heading: re.Pattern[str]) -> list[Passage]:
        """Return the passages of the first section whose heading matches."""
        for section in self.sections:
            if section.heading_line and heading.search(section.heading_path[-1]):
                return [item for item in self.passages if item.section == section.index]
        return []

    def list_items(self, heading: re.Pattern[str]) -> list[str]:
        """Return the first lines of the list items below a matching heading, without list marks."""
        lines = [
            _ITEM_MARK.sub("", self.lines[passage.first_line - 1])
            for passage in self.get_section_passages(heading)
            if passage.kind is PassageKind.LIST_ITEM
        ]
        return [
            line[:300].replace("**", "").replace("`", "").strip() for line in lines[:_SECTION_ITEMS]
        ]


def build_record(
    path: str,
    fields: FrontmatterFields,
    body: SkillBody,
    files: Sequence[SiblingFile],
    safety: tuple[SafetyFinding, ...],
    terms: str = "",
) -> tuple[SkillRecord, list[ParseWarning]]:
    """Build the record of the skill in the folder `path`; also return warnings about its fields.

    terms: text of the licence file in the folder.
    """
    warnings: list[ParseWarning] = []
    name = _name(path, fields, warnings)
    description = _description(name, fields, body, warnings)
    tokens = sum(passage.tokens for passage in body.passages) + _heading_tokens(body)
    code = sum(passage.tokens for passage in body.passages if passage.kind is PassageKind.CODE)
    record = SkillRecord(
        name=name,
        description=description,
        capability=_capability(description),
        when_to_use=_when_to_use(fields, description, body),
        inputs=fields.get_list("inputs", "input") or _terms(body.list_items(_INPUT_HEADING)),
        outputs=fields.get_list("outputs", "output") or _terms(body.list_items(_OUTPUT_HEADING)),
        domain_tags=fields.get_scalars(*_TAGS),
        tooling=tooling.find_tools(fields, body.lines, body.passages, f"{name} {description}"),
        example_tasks=_examples(fields, body),
        entrypoints=tooling.find_entrypoints(files),
        compatibility=fields.get_text("compatibility", "compatible-with"),
        allowed_tools=parse_tool_names(fields.get("allowed-tools", "tools", "allowedtools")),
        depends=unique_texts(
            [name for key in _DEPENDS for name in parse_skill_names(fields.get(key))]
        ),
        conflicts=unique_texts(
            [name for key in _CONFLICTS for name in parse_skill_names(fields.get(key))]
        ),
        licence=licences.resolve_licence(fields.get_text("license", "licence")[:200], terms),
        version=fields.get_text("version")[:60],
        metadata=fields.get_other_fields(_KNOWN),
        language=detect_language(f"{description}\n{body.prose()}"),
        tokens=tokens,
        code_share=round(code / tokens, 4) if tokens else 0.0,
        files=tuple(sorted(files, key=lambda file: file.path)),
        safety_level=max((finding.level for finding in safety), default=0),
        safety=safety,
        scanner=SCANNER_VERSION,
    )
    return record, warnings


def _heading_tokens(body: SkillBody) -> int:
    """Return the tokens of all headings, with their marks."""
    return sum(
        section.level + count_tokens(section.heading_path[-1])
        for section in body.sections
        if section.heading_line
    )


def _name(path: str, fields: FrontmatterFields, warnings: list[ParseWarning]) -> str:
    value = fields.get("name")
    texts = flatten_value(value)
    if not isinstance(value, str):
        warnings.append(ParseWarning("name_not_text", 1, "the name is not a text"))
    name = " ".join(texts[0].split()) if texts else ""
    if not any(map(str.isalnum, name)):  # such as the bracket of a list that does not end
        name = path.rstrip("/").rsplit("/", 1)[-1] or "skill"
        warnings.append(ParseWarning("name_missing", 1, "no name; the folder's name is used"))
    if len(name) > MAX_NAME_CHARACTERS:
        warnings.append(ParseWarning("name_long", 1, f"the name has {len(name)} characters"))
    return name[: 4 * MAX_NAME_CHARACTERS]


def _description(
    name: str, fields: FrontmatterFields, body: SkillBody, warnings: list[ParseWarning]
) -> str:
    value = fields.get("description")
    if not isinstance(value, str):
        warnings.append(ParseWarning("description_not_text", 1, "the description is not a text"))
    description = " ".join(" ".join(flatten_value(value)).split())
    if not any(map(str.isalnum, description)):
        warnings.append(
            ParseWarning(
                "description_missing", 1, "no description; the first words of the body are used"
            )
        )
        description = _first_words(body) or name
    if len(description) > MAX_DESCRIPTION_CHARACTERS:
        message = f"the description has {len(description)} characters"
        warnings.append(ParseWarning("description_long", 1, message))
    return description


def _first_words(body: SkillBody) -> str:
    """Return the first paragraph of running text, else the first heading or line."""
    for passage in body.passages:
        text = body.text(passage.first_line, passage.last_line)
        plain = " ".join(text.strip().lstrip("> ").split())
        if passage.kind is PassageKind.PARAGRAPH and len(plain) > 20 and plain[0] not in "<![|-":
            return plain[:MAX_DESCRIPTION_CHARACTERS]
    titles = (title for section in body.sections for title in section.heading_path)
    lines = (" ".join(line.split()) for line in body.lines[body.body_line - 1 :] if line.strip())
    return (next(titles, "") or next(lines, ""))[:MAX_DESCRIPTION_CHARACTERS]


def _capability(description: str) -> str:
    """Return the first sentence of the description."""
    sentence = _SENTENCE_END.split(description, maxsplit=1)[0].strip()
    if len(sentence) <= _CAPABILITY_LENGTH:
        return sentence
    cut = sentence[:_CAPABILITY_LENGTH]
    return f"{cut.rsplit(' ', 1)[0] if ' ' in cut[100:] else cut}…"


def _when_to_use(fields: FrontmatterFields, description: str, body: SkillBody) -> str:
    stated = fields.get_text("when-to-use", "trigger", "triggers", "use-when")
    if stated:
        return stated[:_SECTION_LENGTH]
    sentences = _SENTENCE_END.split(description)
    found = [sentence.strip() for sentence in sentences if _WHEN.search(sentence)]
    if found:
        return " ".join(found)[:_SECTION_LENGTH]
    passages = body.get_section_passages(_WHEN_HEADING)
    if not passages:
        return ""
    return body.text(passages[0].first_line, passages[-1].last_line)[:_SECTION_LENGTH].strip()


def _terms(items: Sequence[str]) -> tuple[str, ...]:
    """Return the term at the start of each item: its text before a colon, a dash or a bracket."""
    return unique_texts([_TERM_END.split(item, maxsplit=1)[0][:80] for item in items])


def _examples(fields: FrontmatterFields, body: SkillBody) -> tuple[str, ...]:
    stated = fields.get_list("example-tasks", "examples", "example-prompts", "triggers")
    return stated or unique_texts(body.list_items(_EXAMPLE_HEADING))
