"""Pinned skills in ingest: their content stays, and newer content of their source is held back.

The published content of a pinned skill depends only on its pin, and the held content only on its
source, so neither order nor repetition of events matters. Setting a pin requests an ingest, so that
a pin that was set during an ingest of its skill takes effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graph.records import CatalogEntry
from search.revision_history import KeptRevision, Pin, RevisionHistory
from skills.record import RevisionKey
from skills.scanner import rescan
from tasks.ingest.preparation.prepare import (
    PreparationRequest,
    PreparationSettings,
    UnreadableSkill,
    prepare_skill,
)
from tasks.services import Services
from tasks.sources.protocol import SkillFolder


def read_pinned(services: Services, entries: Sequence[CatalogEntry]) -> dict[str, KeptRevision]:
    """Return the pinned revisions of these skills. A pin whose revision is gone has no effect."""
    if services.history is None:
        return {}
    pins = services.history.get_pins([entry.skill_id for entry in entries])
    found = {skill_id: _find(services.history, pin) for skill_id, pin in pins.items()}
    return {skill_id: kept for skill_id, kept in found.items() if kept is not None}


def _find(history: RevisionHistory, pin: Pin) -> KeptRevision | None:
    for one in history.list_revisions(pin.skill_id):
        if one.key.seq == pin.seq:
            return rescan_kept(one)
    return None


def rescan_kept(one: KeptRevision) -> KeptRevision:
    """Return a kept revision with the findings of the present scanner."""
    return replace(one, parsed=rescan(one.parsed))


def hold_back(
    services: Services,
    place: tuple[RevisionKey, CatalogEntry],
    folder: SkillFolder,
    settings: PreparationSettings,
    kept: KeptRevision | None,
) -> KeptRevision | UnreadableSkill:
    """Keep the content that the source of a skill has, without publishing it; returns what is kept.

    kept: the revision that is published instead, if any. Content that is held already is not kept
    twice and keeps its seq, by which people decide about it, unless `kept` gets a higher one.
    """
    key, entry = place
    is_new = kept is not None and kept.content_hash != entry.content_hash
    above = key.seq if is_new else entry.seq
    history = services.history
    newest = next(iter(history.list_revisions(entry.skill_id)), None) if history else None
    is_known = newest is not None and newest.content_hash == folder.content_hash
    if newest is not None and is_known and newest.key.seq > above:
        return newest
    prepared = prepare_skill(PreparationRequest(entry.path, folder), settings)
    if isinstance(prepared, UnreadableSkill):
        return prepared
    # Above the seq of the ingest, under which the pinned content may be published.
    seq = services.graph.allocate_sequence(1)[0]
    held = KeptRevision(RevisionKey(entry.skill_id, seq), folder.content_hash, prepared.parsed)
    if history is None:
        return held
    # Another ingest may have held the same content since `newest` was read.
    seq = history.hold(held, above=above)
    return replace(held, key=RevisionKey(entry.skill_id, seq))
