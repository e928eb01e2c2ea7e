"""A skill as plain data: its catalog entry, its record and passages, its links, and whether the
policy keeps it back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from config.errors import NotFoundError, PermanentError
from graph.links.link_rules import estimate_confidence
from graph.links.passage_links import PassageLink, link_passages
from graph.protocol import Catalog, SkillGraph
from graph.records import CatalogEntry, Link, SkillState
from search.protocol import SearchIndex, StoredRevision
from skills.record import RevisionKey
from skills.skill_policy import SkillPolicy
from tasks.query.policy_filter import rescan_revision

_RECORD = (
    *("capability", "when_to_use", "inputs", "outputs", "domain_tags", "tooling"),
    *("example_tasks", "entrypoints", "compatibility", "allowed_tools", "depends"),
    *("conflicts", "version", "metadata", "code_share"),
)


def skill_data(
    graph: SkillGraph,
    index: SearchIndex,
    skill_id: str,
    policy: SkillPolicy,
    *,
    text: bool = False,
    include_withheld: bool = True,
) -> dict[str, Any]:
    """All there is to know of a skill; with `text` its passages hold their text.

    all_of_it: also what the policy withholds; else such a skill is told of without anything that
    its author wrote, and no link tells of one.

    Raises NotFoundError when the catalog has none of this id, PermanentError when its revision is
    not in the index.
    """
    entry = require_entry(graph.get_entries([skill_id]), skill_id)
    data = entry_data(entry, policy, include_withheld=include_withheld)
    links = graph.get_links([skill_id])[skill_id]
    if not include_withheld:
        links = _without_withheld(graph, policy, links)
    data |= {"links": [link_data(link) for link in links], "warnings": []}
    if entry.state is SkillState.PUBLISHED and (include_withheld or data["withheld"] is None):
        revision, inner = _read_revision(index, entry)
        record = revision.parsed.record
        violation = policy.find_record_violation(entry.skill_id, record)
        if violation is not None and not include_withheld:
            return data | {"withheld": violation.reason, "description": "", "links": []}
        data |= _revision_data(revision, text)
        data["passage_links"] = [_passage_link_data(link) for link in inner]
    return data


def withheld_reason(policy: SkillPolicy, entry: CatalogEntry) -> str | None:
    """Why the policy keeps a published skill out of bundles, None when it does not."""
    if entry.state is not SkillState.PUBLISHED:
        return None
    violation = policy.find_violation(entry.source_id, entry.safety_level, entry.licence)
    return violation.reason if violation else None


def _without_withheld(graph: Catalog, policy: SkillPolicy, links: Iterable[Link]) -> list[Link]:
    """The links that neither belong to a withheld skill nor lead to one."""
    links = list(links)
    ends = {end for link in links for end in (link.owner, link.source, link.target)}
    entries = () if policy.allows_all or not ends else graph.get_entries(sorted(ends))
    hidden = {entry.skill_id for entry in entries if withheld_reason(policy, entry) is not None}
    return [link for link in links if not hidden & {link.owner, link.source, link.target}]


def require_entry(entries: Sequence[CatalogEntry], skill_id: str) -> CatalogEntry:
    """The entry of an id; raises NotFoundError when the catalog has none."""
    if not entries:
        raise NotFoundError(f"no skill {skill_id!r}; `skillbus skills list` names them")
    return entries[0]


def entry_data(
    entry: CatalogEntry, policy: SkillPolicy, *, include_withheld: bool = True
) -> dict[str, Any]:
    """A catalog entry as JSON data. all_of_it: also the description of a withheld skill."""
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
        "safety_level": entry.safety_level,
        "tokens": entry.tokens,
        "language": entry.language,
        "licence": entry.licence,
        "paged": entry.embedded,
        "withheld": violation,
    }


def link_data(link: Link) -> dict[str, Any]:
    """A link between skills as JSON data."""
    return {
        "source": link.source,
        "target": link.target,
        "type": link.type.value,
        "weight": round(link.weight, 4),
        "confidence": round(estimate_confidence(link.type, link.weight), 2),
        "evidence": link.evidence,
        "owner": link.owner,
    }


def _read_revision(
    index: SearchIndex, entry: CatalogEntry
) -> tuple[StoredRevision, tuple[PassageLink, ...]]:
    """The published revision, and the links among its passages: they follow from it, so they are
    made when somebody looks."""
    key = RevisionKey(entry.skill_id, entry.seq)
    found = index.get_revisions([key])
    if key not in found:
        raise PermanentError(f"{key} is published but not in the index; run `skillbus doctor`")
    return rescan_revision(found[key]), link_passages(
        found[key].parsed, index.get_section_vectors([key]).get(key)
    )


def _passage_link_data(link: PassageLink) -> dict[str, Any]:
    return {
        "source": link.source,
        "target": link.target,
        "type": link.type.value,
        "weight": round(link.weight, 4),
        "evidence": link.evidence,
    }


def _revision_data(revision: StoredRevision, text: bool) -> dict[str, Any]:
    parsed, record = revision.parsed, revision.parsed.record
    return {
        **{name: getattr(record, name) for name in _RECORD},
        "files": [{"path": file.path, "size": file.size} for file in record.files],
        "safety": [
            {
                "kind": mark.kind,
                "level": mark.level,
                "file": mark.file or "SKILL.md",
                "line": mark.line,
                "reason": mark.reason,
            }
            for mark in record.safety
        ],
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
