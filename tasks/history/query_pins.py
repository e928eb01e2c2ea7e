"""Revisions that a query requests in place of the published ones."""

from __future__ import annotations

from collections.abc import Mapping

from config.errors import NotFoundError
from graph.records import SkillState
from search.protocol import StoredRevision
from search.revision_history import KeptRevision
from search.skill_analysis import analyse_skill, section_text_hashes
from skills.record import RevisionKey
from skills.scanner import rescan
from skills.skill_policy import is_reviewed_source
from tasks.ingest.held.reviewed import is_reviewed
from tasks.query.policy_filter import rescan_revision
from tasks.services import Services


def read_pinned(services: Services, pins: Mapping[str, int]) -> dict[str, StoredRevision]:
    """Return the requested revisions by skill, with findings of the present scanner.

    Raises NotFoundError for a skill that is not published, a revision that is not kept, and a
    revision that waits for review or was rejected.
    """
    if not pins:
        return {}
    entries = {entry.skill_id: entry for entry in services.graph.get_entries(list(pins))}
    found = {}
    for skill_id, seq in pins.items():
        entry = entries.get(skill_id)
        if entry is None or entry.state is not SkillState.PUBLISHED:
            raise NotFoundError(f"pins: {skill_id} is not published")
        key = RevisionKey(skill_id, seq)
        stored = services.index.get_revisions([key]).get(key)
        if entry.seq == seq and stored is not None:
            found[skill_id] = rescan_revision(stored)
            continue
        history = services.history.list_revisions(skill_id) if services.history else []
        kept = next((one for one in history if one.key.seq == seq), None)
        if kept is None:
            others = sorted({entry.seq, *(one.key.seq for one in history)}, reverse=True)
            raise NotFoundError(
                f"pins: revision {seq} of {skill_id} is not kept; those that are: "
                f"{', '.join(map(str, others))}"
            )
        if is_reviewed_source(services.settings.policy, skill_id):
            reviews = services.review_store.get([skill_id]) if services.review_store else None
            if reviews is None or not is_reviewed(kept, entry, reviews):
                raise NotFoundError(f"pins: revision {seq} of {skill_id} waits for review")
        found[skill_id] = _to_stored(kept, services.encoder_model)
    return found


def _to_stored(kept: KeptRevision, model: str) -> StoredRevision:
    """Return a revision of the history in the form of the index."""
    parsed = rescan(kept.parsed)
    return StoredRevision(
        kept.key,
        kept.content_hash,
        parsed,
        analyse_skill(parsed).passage_terms,
        section_text_hashes(model, parsed),
    )
