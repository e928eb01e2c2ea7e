"""Parses the bytes of a SKILL.md into a ParsedSkill (SkillPager §3.1).

Defects become warnings; an unreadable file raises ParseError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from skills import roles, scanner
from skills.parsing import sibling_files
from skills.parsing.decoding import ParseError, decode_lines, find_conflict_markers
from skills.parsing.fragments import split_blocks
from skills.parsing.front_matter import parse_frontmatter
from skills.parsing.front_matter_fields import FrontmatterFields
from skills.parsing.markdown import BlockType, MarkdownBlock, parse_blocks
from skills.parsing.normalise import SkillBody, build_record
from skills.parsing.strict_yaml import DEFAULT_LIMITS, YamlLimits
from skills.record import ParsedSkill, ParseWarning, Passage, Section, SiblingFile
from skills.roles import RoleClassifier

__all__ = ["PARSER_VERSION", "ParseError", "ParseLimits", "parse_skill"]

PARSER_VERSION = 1
"""Increased whenever `parse_skill` may give another result for the same files, apart from findings
(`SCANNER_VERSION`); skills of an older version are parsed again."""


@dataclass(frozen=True, slots=True)
class ParseLimits:
    """Limits of a SKILL.md. A file that exceeds max_bytes or max_passages raises ParseError; a
    frontmatter that exceeds the limits of YAML is cut or parsed line by line."""

    max_bytes: int = 2_000_000
    max_passages: int = 20_000
    yaml: YamlLimits = DEFAULT_LIMITS


def parse_skill(
    path: str,
    content: bytes,
    files: Sequence[SiblingFile] = (),
    limits: ParseLimits = ParseLimits(),
    classifier: RoleClassifier | None = None,
    file_contents: Mapping[str, bytes] | None = None,
) -> ParsedSkill:
    """Parse the SKILL.md of the folder `path`.

    files: other files of the folder. classifier: assigns roles to passages; by default the
    classifier of the package. file_contents: path -> content of the files that
    `skills.parsing.sibling_files` selects; None if they were not read.

    Raises ParseError if the file is empty, binary, without any letter or digit, or larger than the
    limits.
    """
    lines, warnings = _decode(path, content, limits.max_bytes)
    front = parse_frontmatter(lines, limits.yaml)
    warnings += front.warnings
    warnings += _find_conflicts(lines, front.body_line)
    blocks = parse_blocks(lines, front.body_line)
    warnings += _find_unclosed_fences(blocks)
    sections, passages = split_blocks(lines, blocks, front.body_line)
    if len(passages) + len(sections) > limits.max_passages:
        reason = f"more than {limits.max_passages} passages and sections"
        raise ParseError(path, 0, reason, "split the skill or raise the limit")
    if not passages:
        warnings.append(ParseWarning("no_body", 0, "nothing but headings in the body"))
    findings = scanner.scan_lines(lines, front.body_line)
    if file_contents is not None:
        findings += sibling_files.scan_files(files, file_contents, lines, front.body_line)
    body = SkillBody(
        lines, front.body_line, sections, _classify(lines, sections, passages, classifier)
    )
    terms = sibling_files.find_licence_text(file_contents or {})
    record, record_warnings = build_record(
        path, FrontmatterFields(front.values), body, files, findings, terms
    )
    return ParsedSkill(
        record=record,
        lines=lines,
        body_line=front.body_line,
        sections=sections,
        passages=tuple(body.passages),
        warnings=tuple(warnings + record_warnings),
    )


def _decode(
    path: str, content: bytes, max_bytes: int
) -> tuple[tuple[str, ...], list[ParseWarning]]:
    if len(content) > max_bytes:
        reason = f"{len(content)} bytes are more than the limit of {max_bytes}"
        raise ParseError(path, 0, reason, "split the skill or raise the limit")
    lines, warnings = decode_lines(path, content)
    if not any(char.isalnum() for line in lines for char in line):
        raise ParseError(path, 0, "the file has no text", "write a name, a description and a body")
    return lines, warnings


def _classify(
    lines: Sequence[str],
    sections: Sequence[Section],
    passages: Sequence[Passage],
    classifier: RoleClassifier | None,
) -> tuple[Passage, ...]:
    verdicts = roles.classify_passages(lines, sections, passages, classifier)
    return tuple(
        passage.with_role(role, confidence)
        for passage, (role, confidence) in zip(passages, verdicts, strict=True)
    )


def _find_conflicts(lines: Sequence[str], body_line: int) -> list[ParseWarning]:
    """Return a warning about conflict markers in the body; the markers stay in the text."""
    marks = [number for number in find_conflict_markers(lines) if number >= body_line]
    if not marks:
        return []
    return [
        ParseWarning(
            "conflict_marks", marks[0], "conflict markers of an unresolved merge in the body"
        )
    ]


def _find_unclosed_fences(blocks: Sequence[MarkdownBlock]) -> list[ParseWarning]:
    return [
        ParseWarning("unclosed_fence", block.first, "a code fence that is never closed")
        for block in blocks
        if block.type is BlockType.CODE and not block.closed
    ][:20]
