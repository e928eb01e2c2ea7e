"""What was chosen as it is read, or as the catalog knows it while its text cannot be read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from config.errors import TransientError
from graph.records import CatalogEntry, SkillState
from search.protocol import PassageTerms, StoredRevision
from skills.parsing.parse_skill import parse_skill
from skills.record import RevisionKey, SafetyFinding
from tasks.query.choose import ChosenSkill, SkillChoice
from tasks.query.policy_filter import PolicyFilter
from tasks.services import Services

_READ_ATTEMPTS = 3
_MARKED = "its text was marked, and cannot be read now"


def read_or_fall_back(
    services: Services, policy_filter: PolicyFilter, lost: list[str], choice: SkillChoice
) -> dict[str, StoredRevision]:
    """Published revisions with the marks of this scanner; while the index is away what the catalog
    says of them, which is noted in `lost`."""
    try:
        found = _read(services, choice.chosen)
    except TransientError as error:
        if services.circuit_breakers is None:
            raise
        lost.append(f"no passages: {error}")
        return fallback_revisions(
            services.graph.get_entries([one.skill_id for one in choice.chosen])
        )
    return {skill_id: policy_filter.rescan(revision) for skill_id, revision in found.items()}


def _read(services: Services, chosen: Sequence[ChosenSkill]) -> dict[str, StoredRevision]:
    """Published revisions; one that was superseded and swept meanwhile is read at its newest."""
    found: dict[str, StoredRevision] = {}
    for attempt in range(_READ_ATTEMPTS):
        snapshot = services.library.refresh() if attempt else services.library.latest
        pointers = snapshot.pointers
        keys = [
            RevisionKey(skill.skill_id, pointers[skill.skill_id])
            for skill in chosen
            if skill.skill_id in pointers and skill.skill_id not in found
        ]
        if not keys:
            break
        for key, revision in services.index.get_revisions(keys).items():
            found[key.skill_id] = revision
    return found


def fallback_revisions(entries: Iterable[CatalogEntry]) -> dict[str, StoredRevision]:
    """Published skills with name and description and without any passage, by skill_id."""
    return {
        entry.skill_id: _fallback_revision(entry)
        for entry in entries
        if entry.state is SkillState.PUBLISHED
    }


def _fallback_revision(entry: CatalogEntry) -> StoredRevision:
    # JSON strings are YAML strings, whatever they hold.
    header = f"name: {json.dumps(entry.name)}\ndescription: {json.dumps(entry.description)}"
    nothing = PassageTerms(np.zeros(1, np.int32), np.zeros(0, np.uint64), np.zeros(0, np.uint16))
    parsed = parse_skill(entry.path, f"---\n{header}\n---\n".encode())
    marks = (SafetyFinding("unread", entry.safety_level, 1, _MARKED),) if entry.safety_level else ()
    record = replace(
        parsed.record,
        licence=entry.licence,
        safety_level=entry.safety_level,
        safety=marks,
        scanner=entry.scanner_version,
    )
    return StoredRevision(
        RevisionKey(entry.skill_id, entry.seq),
        entry.content_hash,
        replace(parsed, record=record),
        nothing,
        (),
    )
