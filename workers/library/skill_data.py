"""A skill as JSON data: its catalog entry, its revision with record and passages, its links."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from graph.links.link_rules import estimate_confidence
from graph.links.passage_links import PassageLink
from graph.records import CatalogEntry, DismissedLink, Link, SkillState
from search.protocol import StoredRevision
from skills.record import SafetyFinding, SkillRecord
from skills.scanner import find_rule, get_quote
from skills.skill_policy import SkillPolicy

_RECORD = (
    *("capability", "when_to_use", "inputs", "outputs", "domain_tags", "tooling"),
    *("example_tasks", "entrypoints", "compatibility", "allowed_tools", "depends"),
    *("conflicts", "version", "metadata", "code_share"),
)


def withheld_reason(policy: SkillPolicy, entry: CatalogEntry) -> str | None:
    """Why the policy keeps a published skill out of bundles, None if it does not."""
    if entry.state is not SkillState.PUBLISHED:
        return None
    violation = policy.find_violation(
        entry.source_id, entry.safety_level, entry.licence, entry.judgements
    )
    return violation.reason if violation else None


def entry_data(
    entry: CatalogEntry, policy: SkillPolicy, *, include_withheld: bool = True
) -> dict[str, Any]:
    """A catalog entry. include_withheld: whether a withheld skill has its description."""
    violation = withheld_reason(policy, entry)
    return {
        "skill_id": entry.skill_id,
        "name": entry.name,
        "seq": entry.seq or None,
        "content_hash": entry.content_hash or None,
        "state": entry.state.value,
        "reason": entry.reason or None,
        "source_id": entry.source_id,
        "path": entry.path,
        "description": entry.description if include_withheld or violation is None else "",
        "warnings": entry.warnings,
        "safety_level": policy.raise_level(entry.safety_level, entry.judgements),
        "tokens": entry.tokens,
        "language": entry.language,
        "licence": entry.licence,
        "has_vectors": entry.has_vectors,
        "embedded": entry.embedded,
        "paged": entry.embedded,  # the name before 0.2; remove it after that version
        "withheld": violation,
    }


def link_data(link: Link) -> dict[str, Any]:
    """A link between skills."""
    return {
        "source": link.source,
        "target": link.target,
        "type": link.type.value,
        "weight": round(link.weight, 4),
        "confidence": round(estimate_confidence(link.type, link.weight), 2),
        "evidence": link.evidence,
        "owner": link.owner,
    }


def dismissal_data(dismissed: DismissedLink) -> dict[str, Any]:
    """A dismissed link as JSON data."""
    return {
        "source": dismissed.source,
        "target": dismissed.target,
        "type": dismissed.type.value,
        "reason": dismissed.reason,
        "dismissed_at": datetime.fromtimestamp(dismissed.dismissed, UTC).isoformat(
            timespec="seconds"
        ),
    }


def passage_link_data(link: PassageLink) -> dict[str, Any]:
    """A link between passages of one skill, which are named by their places."""
    return {
        "source": link.source,
        "target": link.target,
        "type": link.type.value,
        "weight": round(link.weight, 4),
        "evidence": link.evidence,
    }


def finding_data(finding: SafetyFinding) -> dict[str, Any]:
    """A finding with its rule; rule and remedy are "" for a second opinion and for findings of
    older scanners."""
    rule = find_rule(finding)
    return {
        "rule": rule.id if rule else "",
        "kind": finding.kind,
        "level": finding.level,
        "file": finding.file or "SKILL.md",
        "line": finding.line,
        "reason": finding.reason,
        "quote": get_quote(finding) if rule else "",
        "remedy": rule.remedy if rule else "",
    }


def revision_data(revision: StoredRevision, text: bool) -> dict[str, Any]:
    """A revision: its record, files, safety marks, warnings and passages.

    text: whether passages hold their text.
    """
    parsed, record = revision.parsed, revision.parsed.record
    return {
        **{name: getattr(record, name) for name in _RECORD},
        **_completed_fields(record),
        "files": [{"path": file.path, "size": file.size} for file in record.files],
        "safety": [finding_data(mark) for mark in record.safety],
        "warnings": [
            {"code": warning.code, "line": warning.line, "message": warning.message}
            for warning in parsed.warnings
        ],
        "passages": [
            {
                "lines": [passage.first_line, passage.last_line],
                "role": passage.role.value,
                "confidence": round(passage.confidence, 3),
                "kind": passage.kind.value,
                "heading_path": list(parsed.sections[passage.section].heading_path),
                "tokens": passage.tokens,
                **({"text": parsed.text(passage.first_line, passage.last_line)} if text else {}),
            }
            for passage in parsed.passages
        ],
    }


def _completed_fields(record: SkillRecord) -> dict[str, Any]:
    """The fields of a record that a language model filled, and `completed_by`: its name by field.

    Nothing for a record without any.
    """
    fields: dict[str, Any] = {}
    models: dict[str, str] = {}
    for completion in record.completions:
        for name, texts in completion.fields.items():
            fields[name] = texts[0] if name == "capability" else texts
            models[name] = completion.model
    return {**fields, "completed_by": models} if models else {}
