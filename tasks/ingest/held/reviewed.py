"""Updates that wait for review, in ingest: a skill stays at its approved content.

Skills of the sources in `policy.review` work like pinned ones. The source's content is published if
it was approved, else the newest approved revision above the published one, else nothing changes; so
neither order nor repetition of events matters. An approval requests an ingest, and approvals are
read after the ingest took its seq, so that none is missed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graph.records import CatalogEntry, SkillState
from search.revision_history import KeptRevision
from skills.record import RevisionKey
from skills.review import ReviewKind, ReviewRecord, Reviews
from skills.skill_policy import is_reviewed_source
from tasks.ingest.held.pinned import hold_back, read_pinned
from tasks.ingest.read_folders import PendingSkill
from tasks.services import Services
from tasks.sources.protocol import SkillFolder

UPDATE_KINDS = (ReviewKind.WAITING, ReviewKind.APPROVAL, ReviewKind.REJECTION)

HELD_REASON = "waits for review; `skillbus review list` lists what does"


@dataclass(slots=True)
class ReviewedSkills:
    """Skills of a batch that are not published with the content of their source.

    kept: skills that stay at a revision, or get an approved one. new: skills without such a
    revision. unreadable: new skills that cannot be parsed, each with the reason.
    """

    kept: dict[str, KeptRevision] = field(default_factory=dict)
    new: list[PendingSkill] = field(default_factory=list)
    unreadable: dict[PendingSkill, str] = field(default_factory=dict)


def is_reviewed(revision: KeptRevision, entry: CatalogEntry | None, reviews: Reviews) -> bool:
    """Return whether a revision was approved, or published before its source was reviewed."""
    skill_id, content_hash = revision.key.skill_id, revision.content_hash
    decided = reviews.find(skill_id, content_hash, ReviewKind.APPROVAL, ReviewKind.REJECTION)
    if decided is not None:
        return decided.kind is ReviewKind.APPROVAL
    return revision.published > 0 or (entry is not None and entry.content_hash == content_hash)


def hold_for_review(
    services: Services,
    folders: Mapping[PendingSkill, SkillFolder],
    pinned: Mapping[str, KeptRevision],
) -> ReviewedSkills:
    """Hold back the folders whose content was not approved; skips pinned skills."""
    found, store = ReviewedSkills(), services.review_store
    policy = services.settings.policy
    concerned = {
        place: folder
        for place, folder in folders.items()
        if place[1].skill_id not in pinned and is_reviewed_source(policy, place[1].skill_id)
    }
    if store is None or not concerned:
        return found
    reviews = store.get([entry.skill_id for _, entry in concerned])
    for place, folder in concerned.items():
        entry = place[1]
        if _may_publish(entry, folder, reviews):
            _end_waiting(services, entry.skill_id, reviews)
            continue
        kept = _find_kept(services, entry, reviews)
        held = hold_back(services, place, folder, kept)
        if isinstance(held, KeptRevision):
            _end_waiting(services, entry.skill_id, reviews, but=held.content_hash)
            waiting = ReviewRecord(
                *(entry.skill_id, held.content_hash, ReviewKind.WAITING), seq=held.key.seq
            )
            store.save([waiting], only_new=True)
        if kept is not None:
            found.kept[entry.skill_id] = kept
        elif isinstance(held, KeptRevision):
            found.new.append(place)
        else:
            found.unreadable[place] = held.reason
    return found


def find_staying(services: Services, entries: Sequence[CatalogEntry]) -> dict[str, KeptRevision]:
    """Return the revisions at which skills stay while their source cannot be read: those of pinned
    skills, and of skills whose updates are reviewed."""
    if not entries:
        return {}
    staying, store = read_pinned(services, entries), services.review_store
    reviewed = [
        entry
        for entry in entries
        if is_reviewed_source(services.settings.policy, entry.skill_id)
        and entry.skill_id not in staying
    ]
    if store is not None and reviewed:
        reviews = store.get([entry.skill_id for entry in reviewed])
        for entry in reviewed:
            if (kept := _find_kept(services, entry, reviews)) is not None:
                staying[entry.skill_id] = kept
    return staying


def find_held_back(services: Services, skill_ids: Sequence[str]) -> set[str]:
    """Return those of these skills that are pinned, or of which an update waits for review."""
    found = set(services.history.get_pins(skill_ids)) if services.history else set()
    policy, store = services.settings.policy, services.review_store
    reviewed = [skill_id for skill_id in skill_ids if is_reviewed_source(policy, skill_id)]
    if store is not None and reviewed:
        records = store.get(reviewed).by_skill.values()
        found |= {
            one.skill_id for some in records for one in some if one.kind is ReviewKind.WAITING
        }
    return found


def request_decided(services: Services) -> int:
    """Request ingest of skills whose published content differs from their reviews; returns how
    many.

    These are: skills whose approval was recorded without a request, as in a crash; skills with a
    waiting update whose seq is below that of a revision published since, which ingest numbers anew;
    and all skills whose sources are not reviewed any more.
    """
    store, history, policy = services.review_store, services.history, services.settings.policy
    if store is None or history is None:
        return 0
    newest = {
        skill_id: max(found, key=lambda one: one.seq)
        for skill_id, records in store.get_all().by_skill.items()
        if (found := [one for one in records if one.kind in UPDATE_KINDS])
    }
    if not newest:
        return 0
    # Before the entries are read: a skill that is removed meanwhile does not come back.
    seq = services.graph.allocate_sequence(1)[0]
    pinned = history.get_pins()
    wanted = []
    for entry in services.graph.get_entries(sorted(newest.keys() - pinned.keys())):
        record = newest[entry.skill_id]
        if entry.awaits_ingest or entry.state not in (SkillState.PUBLISHED, SkillState.HELD):
            continue
        is_past = record.seq <= entry.seq
        if not is_reviewed_source(policy, entry.skill_id):
            wanted += [] if is_past else [entry]
        elif is_past:
            waits = record.kind is ReviewKind.WAITING and record.content_hash != entry.content_hash
            wanted += [entry] if waits else []
        elif record.kind is ReviewKind.APPROVAL:
            key = RevisionKey(entry.skill_id, record.seq)
            wanted += [entry] if history.find_kept([key]) else []
    if wanted:
        services.graph.request_ingest([one.place for one in wanted], seq)
    return len(wanted)


def _may_publish(entry: CatalogEntry, folder: SkillFolder, reviews: Reviews) -> bool:
    if entry.seq and entry.content_hash == folder.content_hash:
        return True
    approval = reviews.find(entry.skill_id, folder.content_hash, ReviewKind.APPROVAL)
    return approval is not None


def _end_waiting(services: Services, skill_id: str, reviews: Reviews, but: str = "") -> None:
    """Delete the records of waiting contents, except `but`, that the source does not have any
    more."""
    slots = [
        one.slot
        for one in reviews.by_skill.get(skill_id, ())
        if one.kind is ReviewKind.WAITING and one.content_hash != but
    ]
    if not slots or services.review_store is None:
        return
    removed = services.review_store.remove(skill_id, slots)
    # People may have decided since the reviews were read.
    decided = [one for one in removed if one.kind is not ReviewKind.WAITING]
    if decided:
        services.review_store.save(decided, only_new=True)


def _find_kept(services: Services, entry: CatalogEntry, reviews: Reviews) -> KeptRevision | None:
    """Return the newest approved revision above the published one, else the published one."""
    history = services.history.list_revisions(entry.skill_id) if services.history else []
    for one in history:
        approval = reviews.find(entry.skill_id, one.content_hash, ReviewKind.APPROVAL)
        if one.key.seq > entry.seq and approval is not None:
            return one
    if not entry.seq:
        return None
    stored = services.index.get_revisions([entry.key]).get(entry.key)
    if stored is not None:
        return KeptRevision(entry.key, stored.content_hash, stored.parsed, entry.updated)
    return next((one for one in history if one.content_hash == entry.content_hash), None)
