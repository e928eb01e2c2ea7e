"""Serialises parsed skills: a version byte, then compact JSON under zlib; lossless."""

from __future__ import annotations

import json
import zlib
from typing import Any

from config.errors import PermanentError
from skills.record import (
    Completion,
    ParsedSkill,
    ParseWarning,
    Passage,
    PassageKind,
    Role,
    SafetyFinding,
    Section,
    SiblingFile,
    SkillRecord,
)

VERSION = 2
"""Increased whenever the format changes."""
COMPLETED_VERSION = 3
"""Version of a skill with completions; a skill without completions is stored as VERSION."""
_READABLE_VERSIONS = (1, VERSION, COMPLETED_VERSION)
"""Readable versions; version 1 has no scanner version and no findings in other files."""

_COMPRESSION_LEVEL = 3
_ROLES = list(Role)
_KINDS = list(PassageKind)
_RECORD = tuple(SkillRecord.__slots__)
_LISTS = frozenset(
    {
        "inputs",
        "outputs",
        "domain_tags",
        "tooling",
        "example_tasks",
        "entrypoints",
        "allowed_tools",
        "depends",
        "conflicts",
    }
)


class CodecError(PermanentError):
    """Stored bytes cannot be read; the skill has to be indexed again."""


def dump(parsed: ParsedSkill) -> bytes:
    """Serialise a skill; `load` restores an equal one."""
    record = parsed.record
    plain = {name: getattr(record, name) for name in _RECORD}
    completions = plain.pop("completions")
    if completions:
        plain["completions"] = [
            (item.stage, item.model, item.version, item.fields) for item in completions
        ]
    plain["files"] = [(file.path, file.size, file.sha256) for file in record.files]
    plain["safety"] = [
        (item.kind, item.level, item.line, item.reason, item.file) for item in record.safety
    ]
    sections = [
        (item.heading_path, item.level, item.heading_line, item.first_line, item.last_line)
        for item in parsed.sections
    ]
    passages = [
        (
            item.section,
            _KINDS.index(item.kind),
            _ROLES.index(item.role),
            item.confidence,
            item.first_line,
            item.last_line,
            item.tokens,
            item.language,
            item.lead_in,
        )
        for item in parsed.passages
    ]
    warnings = [(item.code, item.line, item.message) for item in parsed.warnings]
    body = [plain, parsed.lines, parsed.body_line, sections, passages, warnings]
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    version = COMPLETED_VERSION if completions else VERSION
    return bytes([version]) + zlib.compress(text.encode(), _COMPRESSION_LEVEL)


def load(data: bytes) -> ParsedSkill:
    """Deserialise a skill; raises CodecError for bytes that `dump` did not write."""
    if not data or data[0] not in _READABLE_VERSIONS:
        raise CodecError(
            f"stored skill is not of a version up to {COMPLETED_VERSION}; index it again"
        )
    try:
        plain, lines, body_line, sections, passages, warnings = json.loads(
            zlib.decompress(memoryview(data)[1:])
        )
        return ParsedSkill(
            record=_record(plain),
            lines=tuple(lines),
            body_line=body_line,
            sections=tuple(
                Section(index, tuple(path), *rest) for index, (path, *rest) in enumerate(sections)
            ),
            passages=tuple(_passage(index, row) for index, row in enumerate(passages)),
            warnings=tuple(ParseWarning(*row) for row in warnings),
        )
    except (zlib.error, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise CodecError("stored skill is damaged; index it again") from error


def _record(plain: dict[str, Any]) -> SkillRecord:
    for name in _LISTS:
        plain[name] = tuple(plain[name])
    plain["files"] = tuple(SiblingFile(*row) for row in plain["files"])
    plain["safety"] = tuple(SafetyFinding(*row) for row in plain["safety"])
    plain["completions"] = tuple(_completion(row) for row in plain.get("completions", ()))
    return SkillRecord(**plain)


def _completion(row: list[Any]) -> Completion:
    stage, model, version, fields = row
    return Completion(stage, model, version, {name: tuple(texts) for name, texts in fields.items()})


def _passage(index: int, row: list[Any]) -> Passage:
    section, kind, role, *rest = row
    confidence, first, last, tokens, language, lead = rest
    return Passage(
        index, section, _KINDS[kind], _ROLES[role], confidence, first, last, tokens, language, lead
    )
