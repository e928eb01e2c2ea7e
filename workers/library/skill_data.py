"""A skill as JSON data: its catalog entry, its revision with record and passages, its links."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from graph.links.link_rules import estimate_confidence
from graph.links.passage_links import PassageLink
from graph.records import CatalogEntry, DismissedLink, Link, SkillState
from search.protocol import StoredRevision
from skills.judgement import JUDGEMENT_RULE
from skills.record import SafetyFinding, SkillRecord
from skills.review import CountedFindings, Exemption, ReviewRecord, get_rule_id
from skills.scanner import find_rule, get_quote
from workers.library.entry_policy import PolicyResult

_RECORD = (
    *("capability", "when_to_use", "inputs", "outputs", "domain_tags", "tooling"),
    *("example_tasks", "entrypoints", "compatibility", "allowed_tools", "depends"),
    *("conflicts", "version", "metadata", "code_share"),
)


def entry_data(
    entry: CatalogEntry, result: PolicyResult, *, include_withheld: bool = True
) -> dict[str, Any]:
    """Return a catalog entry. include_withheld: whether a withheld skill has its description."""
    withheld = result.withheld
    return {
        "skill_id": entry.skill_id,
        "name": entry.name,
        "seq": entry.seq or None,
        "content_hash": entry.content_hash or None,
        "state": entry.state.value,
        "reason": entry.reason or None,
        "source_id": entry.source_id,
        "path": entry.path,
        "description": entry.description if include_withheld or withheld is None else "",
        "warnings": entry.warnings,
        "safety_level": result.level,
        "tokens": entry.tokens,
        "language": entry.language,
        "licence": entry.licence,
        "has_vectors": entry.has_vectors,
        "has_scripts": entry.has_scripts,
        "embedded": entry.embedded,
        "paged": entry.embedded,  # the name before 0.2; remove it after that version
        "withheld": withheld,
    }


def explain_unpublished(entry: CatalogEntry) -> str:
    """Return why a skill is not published, with its id; "" if it is."""
    return {
        SkillState.PUBLISHED: "",
        SkillState.PENDING: f"{entry.skill_id} is not indexed yet; try again in a moment",
        SkillState.FAILED: f"{entry.skill_id} could not be read: {entry.reason}",
        SkillState.HELD: f"{entry.skill_id} waits for review",
        SkillState.REMOVED: f"{entry.skill_id} was removed",
    }[entry.state]


def link_data(link: Link) -> dict[str, Any]:
    """Return a link between skills as JSON data."""
    return passage_link_data(link) | {
        "confidence": round(estimate_confidence(link.type, link.weight), 2),
        "owner": link.owner,
    }


def dismissal_data(dismissed: DismissedLink) -> dict[str, Any]:
    """Return a dismissed link as JSON data."""
    return {
        "source": dismissed.source,
        "target": dismissed.target,
        "type": dismissed.type.value,
        "reason": dismissed.reason,
        "dismissed_at": format_time(dismissed.dismissed),
    }


def passage_link_data(link: PassageLink | Link) -> dict[str, Any]:
    """Return a link between passages of one skill, named by their indexes, or the same fields of a
    link between skills."""
    return {
        "source": link.source,
        "target": link.target,
        "type": link.type.value,
        "weight": round(link.weight, 4),
        "evidence": link.evidence,
    }


def finding_data(finding: SafetyFinding, exemption: Exemption | None = None) -> dict[str, Any]:
    """Return a finding with its rule, which is `judgement` for that of a language model, and "" for
    findings of older scanners. exemption: why it does not count, None if it does."""
    rule, rule_id = find_rule(finding), get_rule_id(finding)
    waiver = exemption.waiver if exemption else None
    return {
        "rule": rule_id if rule or rule_id == JUDGEMENT_RULE else "",
        "kind": finding.kind,
        "level": finding.level,
        "file": finding.file or "SKILL.md",
        "line": finding.line,
        "reason": finding.reason,
        "quote": get_quote(finding) if rule else "",
        "remedy": rule.remedy if rule else "",
        "waived": decision_data(waiver) if waiver else None,
        "suppressed": exemption is not None and waiver is None,
    }


def decision_data(record: ReviewRecord) -> dict[str, Any]:
    """Return the author, time and reason of a decision."""
    return {"by": record.principal, "at": format_time(record.recorded), "reason": record.reason}


def format_time(seconds: float) -> str:
    """Return seconds since the epoch as RFC 3339, UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def revision_data(
    revision: StoredRevision, findings: CountedFindings, text: bool
) -> dict[str, Any]:
    """Return a revision: its record, files, findings, warnings and passages.

    text: whether passages hold their text.
    """
    parsed, record = revision.parsed, revision.parsed.record
    return {
        **{name: getattr(record, name) for name in _RECORD},
        **_completed_fields(record),
        "files": [{"path": file.path, "size": file.size} for file in record.files],
        "safety": [finding_data(one, findings.exempt.get(one)) for one in findings.findings],
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
    """Return the fields of a record that a language model filled, and
    `completed_by`: its name by field.

    Empty for a record without such fields.
    """
    fields: dict[str, Any] = {}
    models: dict[str, str] = {}
    for completion in record.completions:
        for name, texts in completion.fields.items():
            fields[name] = texts[0] if name == "capability" else texts
            models[name] = completion.model
    return {**fields, "completed_by": models} if models else {}
