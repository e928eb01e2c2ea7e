"""Pinned skills in ingest: their content stays, and newer content of their source is held back.

The published content of a pinned skill depends only on its pin, and the held content only on its
source, so neither order nor repetition of events matters. Setting a pin requests an ingest, so that
a pin that was set during an ingest of its skill takes effect.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from graph.records import CatalogEntry
from search.revision_history import KeptRevision
from skills.record import RevisionKey
from tasks.ingest.preparation.prepare import (
    PreparationRequest,
    UnreadableSkill,
    make_preparation_settings,
    prepare_skill,
)
from tasks.ingest.read_folders import PendingSkill
from tasks.services import Services
from tasks.sources.protocol import SkillFolder


def read_pinned(services: Services, entries: Sequence[CatalogEntry]) -> dict[str, KeptRevision]:
    """Return the pinned revisions of these skills. A pin whose revision is gone has no effect."""
    if services.history is None:
        return {}
    pins = services.history.get_pins([entry.skill_id for entry in entries])
    return {
        skill_id: one
        for skill_id, pin in pins.items()
        for one in services.history.list_revisions(skill_id)
        if one.key.seq == pin.seq
    }


def find_returned(
    services: Services,
    folders: Mapping[PendingSkill, SkillFolder],
    unchanged: Collection[RevisionKey],
) -> list[RevisionKey]:
    """Return the unchanged skills whose source has the published content again, after newer content
    that was held back. They are published anew, so that the newer content counts as superseded."""
    found = []
    for (key, entry), folder in folders.items():
        if key in unchanged and folder.content_hash == entry.content_hash:
            newest = _find_newest(services, entry.skill_id)
            if newest is not None and newest.key.seq > entry.seq:
                found.append(key)
    return found


def hold_pinned(
    services: Services,
    folders: Mapping[PendingSkill, SkillFolder],
    pinned: Mapping[str, KeptRevision],
) -> None:
    """Hold back the folders of pinned skills that have other content than the pin."""
    for place, folder in folders.items():
        kept = pinned.get(place[1].skill_id)
        if kept is not None and kept.content_hash != folder.content_hash:
            hold_back(services, place, folder, kept)


def hold_back(
    services: Services,
    place: PendingSkill,
    folder: SkillFolder,
    kept: KeptRevision | None,
) -> KeptRevision | UnreadableSkill:
    """Keep the content that the source of a skill has, without publishing it; returns what is kept.

    kept: the revision that is published instead, if any. Content that is held already is not kept
    twice and keeps its seq, by which people decide about it, unless `kept` gets a higher one.
    """
    key, entry = place
    is_new = kept is not None and kept.content_hash != entry.content_hash
    above = key.seq if is_new else entry.seq
    newest = _find_newest(services, entry.skill_id)
    is_known = newest is not None and newest.content_hash == folder.content_hash
    if newest is not None and is_known and newest.key.seq > above:
        return newest
    settings = make_preparation_settings(services.settings)
    prepared = prepare_skill(PreparationRequest(entry.path, folder), settings)
    if isinstance(prepared, UnreadableSkill):
        return prepared
    # Above the seq of the ingest, under which the pinned content may be published.
    seq = services.graph.allocate_sequence(1)[0]
    held = KeptRevision(RevisionKey(entry.skill_id, seq), folder.content_hash, prepared.parsed)
    if services.history is None:
        return held
    # Another ingest may have held the same content since `newest` was read.
    seq = services.history.hold(held, above=above)
    return replace(held, key=RevisionKey(entry.skill_id, seq))


def _find_newest(services: Services, skill_id: str) -> KeptRevision | None:
    history = services.history
    return next(iter(history.list_revisions(skill_id)), None) if history else None


def request_new_seqs(services: Services, published: Sequence[PendingSkill]) -> None:
    """Request ingest of pinned skills whose content was published again under a seq above that of
    the content that is held back: ingest gives the held content a higher one.

    published: entries as they were before. For skills under review, `request_decided` does this.
    """
    pins = (
        services.history.get_pins([key.skill_id for key, _ in published])
        if services.history
        else ()
    )
    wanted = [
        entry.place
        for key, entry in published
        if key.skill_id in pins
        and (newest := _find_newest(services, key.skill_id)) is not None
        and entry.seq < newest.key.seq < key.seq
    ]
    if wanted:
        services.graph.request_ingest(wanted, services.graph.allocate_sequence(1)[0])
