"""Ingest: parse, classify, index and publish a batch of skills.

Searches find published skills by words; `embed_skills` adds their vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from config.errors import TransientError
from config.tracing import span
from graph.records import CatalogEntry, Publication
from search.protocol import Filters, SkillDocument, Vector
from search.revision_history import KeptRevision
from search.skill_analysis import section_text_hashes, skill_text_hashes
from skills import licences
from skills.record import ParsedSkill, RevisionKey
from skills.review import collect_rule_ids
from tasks.history.keep import keep_superseded
from tasks.ingest.held.pinned import hold_back, read_pinned
from tasks.ingest.held.reviewed import HELD_REASON, hold_for_review, keep_reviewed
from tasks.ingest.next_tasks import (
    send_after_ingest,
    send_ingest,
    send_refine,
)
from tasks.ingest.preparation.prepare import (
    PreparationRequest,
    PreparationSettings,
    PreparedSkill,
    UnreadableSkill,
    prepare_parsed,
)
from tasks.ingest.read_folders import Failure, PendingSkill, read_folders, withdraw_gone
from tasks.metrics_recorder import time_stage
from tasks.policies import INGEST, Deadline, DeadlineExceededError
from tasks.record_work import record_searchable
from tasks.refine.completion.completions import find_outdated, read_completions
from tasks.services import Services
from tasks.sources.directory import to_parse_limits
from tasks.sources.protocol import SkillFolder

_Staying = Mapping[str, KeptRevision]
"""Revisions at which skills stay, by skill_id: of pinned skills, and of skills whose updates wait
for review."""

_Published = tuple[RevisionKey, bool]
"""A published revision, with True if its skill vectors are stored."""


@dataclass(slots=True)
class _SkillWork:
    """A skill that was read, with the data for the later stages."""

    key: RevisionKey
    entry: CatalogEntry
    content_hash: str
    prepared: PreparedSkill

    @property
    def parsed(self) -> ParsedSkill:
        return self.prepared.parsed


def ingest(services: Services, deadline: Deadline, skill_ids: Sequence[str]) -> dict[str, object]:
    """Publish the content that these skills have in their sources now; idempotent.

    Skills without an open request are skipped. Each other skill takes a new seq before its content
    is read, so that of two runs the run with the higher seq has read the newer content. A skill
    that cannot be read becomes a failed entry, and does not affect the others. Raises
    TransientError for skills that may be readable later, once the others are published.
    """
    published: list[_Published] = []
    unavailable: list[TransientError] = []
    try:
        entries = [entry for entry in services.graph.get_entries(skill_ids) if needs_ingest(entry)]
        with time_stage(services.metrics, INGEST.name, "read"):
            skills = _read(services, entries, deadline, unavailable) if entries else []
        published = _publish(services, skills, deadline) if skills else []
    finally:
        _send_next_tasks(services, published, services.coordinator.add_pending(INGEST.name, -1))
    if unavailable:
        raise unavailable[0]
    return {"published": len(published)}


def _send_next_tasks(services: Services, published: Sequence[_Published], others: int) -> None:
    """Send the tasks that link, embed and refine published skills.

    others: ingest tasks that still run or wait.
    """
    lacking = [key for key, has_vectors in published if not has_vectors]
    send_after_ingest(services, lacking, others)
    if services.sends_refine and services.settings.language_model.offline_stages:
        skill_ids = [key.skill_id for key, _ in published]
        send_refine(services.coordinator, services.send_task, skill_ids)


def needs_ingest(entry: CatalogEntry) -> bool:
    """Return whether ingest of an entry was requested and has not been done since."""
    return entry.requested_seq > entry.seq


def _read(
    services: Services,
    entries: Sequence[CatalogEntry],
    deadline: Deadline,
    unavailable: list[TransientError],
) -> list[_SkillWork]:
    """Read and parse the skills that have to be published; record the others in the catalog.

    unavailable: gets the errors of skills that cannot be read now; their requests stay open.
    """
    graph = services.graph
    read = read_folders(services, entries, deadline)
    unavailable += read.unavailable
    folders, failures = read.folders, read.failures
    staying: _Staying = read_pinned(services, entries)
    folders = _replace_held(services, folders, staying)
    staying, held, unreadable = _hold_unreviewed(services, folders, staying)
    by_id = {entry.skill_id: entry for entry in entries}
    for key, *_ in failures:
        kept = staying.get(key.skill_id) or keep_reviewed(services, by_id[key.skill_id])
        if kept is not None:
            staying = {**staying, key.skill_id: kept}
            folders[key, by_id[key.skill_id]] = _stand_in(kept)
    failures = [one for one in failures if one[0].skill_id not in staying] + unreadable
    unchanged = _find_unchanged(services, folders)
    changed = {place: folder for place, folder in folders.items() if place[0] not in unchanged}
    skills = []
    with span("ingest prepare", {"skillbus.skills": len(changed)}):
        for (key, entry), outcome in _prepare(services, changed, staying, deadline):
            if isinstance(outcome, UnreadableSkill):
                failures.append((key, entry.source_id, entry.path, outcome.reason))
            else:
                content_hash = changed[key, entry].content_hash
                skills.append(_SkillWork(key, entry, content_hash, outcome))
    withdraw_gone(services, read.gone)
    if failures:
        failed = {key.skill_id for key, *_ in failures}
        keep_superseded(services, [entry for entry in entries if entry.skill_id in failed])
        graph.record_failures(failures)
    graph.record_held(held)
    if unchanged:
        graph.mark_unchanged(list(unchanged), list(unchanged.values()))
    return skills


def _replace_held(
    services: Services, folders: Mapping[PendingSkill, SkillFolder], pinned: _Staying
) -> dict[PendingSkill, SkillFolder]:
    """Return the folders. A folder whose content differs from its skill's pin is held back and
    replaced by an empty folder with the content hash of the pin."""
    settings, replaced = _preparation_settings(services), {}
    for (key, entry), folder in folders.items():
        replaced[key, entry] = folder
        kept = pinned.get(entry.skill_id)
        if kept is not None and kept.content_hash != folder.content_hash:
            hold_back(services, (key, entry), folder, settings, kept)
            replaced[key, entry] = _stand_in(kept)
    return replaced


def _hold_unreviewed(
    services: Services, folders: dict[PendingSkill, SkillFolder], pinned: _Staying
) -> tuple[_Staying, list[Failure], list[Failure]]:
    """Hold back content that waits for review: replace its folders, or remove those of new skills.

    Returns the skills that stay at a revision, the pinned ones included, the new skills that are
    held, and the new skills that cannot be read.
    """
    found = hold_for_review(services, folders, pinned, _preparation_settings(services))
    for place in folders:
        if (kept := found.kept.get(place[1].skill_id)) is not None:
            folders[place] = _stand_in(kept)
    reasons = dict.fromkeys(found.new, HELD_REASON) | found.unreadable
    rows = {
        place: (place[0], place[1].source_id, place[1].path, reason)
        for place, reason in reasons.items()
    }
    for place in rows:
        del folders[place]
    held = [rows[place] for place in found.new]
    return {**pinned, **found.kept}, held, [rows[place] for place in found.unreadable]


def _stand_in(pinned: KeptRevision) -> SkillFolder:
    """Return a folder with the content hash of a pinned revision, which is not parsed again."""
    return SkillFolder(b"", (), pinned.content_hash)


def _preparation_settings(services: Services) -> PreparationSettings:
    limits = to_parse_limits(services.settings.limits)
    chosen = services.settings
    return PreparationSettings(limits, chosen.roles.weights, chosen.policy.indicators)


def _prepare(
    services: Services,
    folders: Mapping[PendingSkill, SkillFolder],
    staying: _Staying,
    deadline: Deadline,
) -> Iterator[tuple[PendingSkill, PreparedSkill | UnreadableSkill]]:
    """Yield the outcome of each folder; for a skill that stays at a revision, that revision."""
    completions = read_completions(services, [one.content_hash for one in folders.values()])
    read = {place: folder for place, folder in folders.items() if place[1].skill_id not in staying}
    requests = [
        PreparationRequest(entry.path, folder, completions.get(folder.content_hash, ()))
        for (_, entry), folder in read.items()
    ]
    outcomes = services.preparer.prepare(requests, _preparation_settings(services), deadline)
    for place, outcome in zip(read, outcomes, strict=True):
        services.coordinator.yield_to_queries()
        yield place, outcome
    for place in folders:
        if (kept := staying.get(place[1].skill_id)) is not None:
            stored = completions.get(kept.content_hash, ())
            yield place, prepare_parsed(kept.parsed.with_completions(stored))


def _find_unchanged(
    services: Services, folders: Mapping[PendingSkill, SkillFolder]
) -> dict[RevisionKey, str]:
    """Return the skills whose published revision would not change: key -> content hash.

    The document of such a revision is complete and has the stored completions.
    """
    same = {
        RevisionKey(entry.skill_id, entry.seq): (key, folder.content_hash)
        for (key, entry), folder in folders.items()
        if entry.seq and folder.content_hash == entry.content_hash
    }
    stored = services.index.complete_keys(list(same))
    published = {key: content_hash for key, (_, content_hash) in same.items() if key in stored}
    outdated = find_outdated(services, published)
    return dict(same[key] for key in published if key not in outdated)


def _publish(services: Services, skills: list[_SkillWork], deadline: Deadline) -> list[_Published]:
    """Publish skills; skills whose vectors are not known yet get them later (`embed_skills`)."""
    metrics, model = services.metrics, services.encoder_model
    deadline.check("read")
    vectors = _find_known_vectors(services, skills)
    with time_stage(metrics, INGEST.name, "index"):
        services.index.add([_build_document(work, vectors.get(work.key), model) for work in skills])
    kept = _keep_section_vectors(services, skills, model)
    deadline.check("index")
    keep_superseded(
        services, [work.entry for work in skills if work.content_hash != work.entry.content_hash]
    )
    with time_stage(metrics, INGEST.name, "publish"):
        published = services.graph.publish(
            [_build_publication(work, work.key in vectors) for work in skills]
        )
        if kept:
            services.graph.mark_embedded(kept)
    seqs = {work.key: work.entry.requested_seq for work in skills}
    record_searchable(services, [seqs[key] for key in published])
    return [(key, key in vectors) for key in published]


def _find_known_vectors(
    services: Services, skills: Sequence[_SkillWork]
) -> dict[RevisionKey, Vector]:
    """Return the skill vectors, each (2, dimension), of skills whose two texts are in the index."""
    hashes = {work.key: skill_text_hashes(services.encoder_model, work.parsed) for work in skills}
    known = services.index.get_cached_vectors([text for pair in hashes.values() for text in pair])
    return {
        key: np.stack([known[text] for text in pair])
        for key, pair in hashes.items()
        if all(text in known for text in pair)
    }


def _keep_section_vectors(
    services: Services, skills: Sequence[_SkillWork], model: str
) -> list[RevisionKey]:
    """Copy section vectors to new revisions of unchanged content.

    So a skill that a language model completed stays embedded. Returns the keys of the revisions
    that have all their vectors.
    """
    if services.settings.servers.neo4j_passages:  # `embed_sections` also writes the passages
        return []
    kept = []
    for work in skills:
        if work.entry.embedded and work.content_hash == work.entry.content_hash:
            hashes = section_text_hashes(model, work.parsed)
            known = services.index.get_cached_vectors(hashes)
            if hashes and all(one in known for one in hashes):
                vectors = np.stack([known[one] for one in hashes])
                services.index.save_section_vectors(work.key, hashes, vectors)
                kept.append(work.key)
    return kept


def _build_document(work: _SkillWork, vectors: Vector | None, model: str) -> SkillDocument:
    record = work.parsed.record
    return SkillDocument(
        key=work.key,
        content_hash=work.content_hash,
        parsed=work.parsed,
        fields=work.prepared.analysis.fields,
        forward=work.prepared.analysis.forward,
        passage_terms=work.prepared.analysis.passage_terms,
        vectors=vectors,
        section_hashes=section_text_hashes(model, work.parsed),
        filters=Filters(
            source=(work.entry.source_id,),
            licence=licences.licence_names(record.licence),
            language=(record.language,),
            tool=tuple(dict.fromkeys((*record.allowed_tools, *record.tooling))),
        ),
    )


def _build_publication(work: _SkillWork, has_vectors: bool) -> Publication:
    record = work.parsed.record
    return Publication(
        key=work.key,
        source_id=work.entry.source_id,
        path=work.entry.path,
        content_hash=work.content_hash,
        name=record.name,
        description=record.description,
        warnings=len(work.parsed.warnings),
        safety_level=record.safety_level,
        scanner_version=record.scanner,
        tokens=record.tokens,
        language=record.language,
        licence=record.licence,
        mentions=work.prepared.mentions,
        body_terms=work.prepared.body_terms,
        description_terms=work.prepared.description_terms,
        has_vectors=has_vectors,
        rules=collect_rule_ids(record.safety),
        has_scripts=record.has_scripts,
    )


def split_ingest_batch(services: Services, skill_ids: Sequence[str], error: BaseException) -> None:
    """Handle the failure of a batch: send each of its skills alone.

    A skill that fails alone is recorded as failed with the error, so that it does not hold up
    others; unless another run has published or removed it since.
    """
    if isinstance(error, TransientError) and not isinstance(error, DeadlineExceededError):
        # Their requests stay open in the catalog; the reconciler sends them again.
        return
    if len(skill_ids) > 1:
        for skill_id in skill_ids:
            send_ingest(services, [skill_id])
        return
    entries = [entry for entry in services.graph.get_entries(skill_ids) if needs_ingest(entry)]
    services.graph.record_failures(
        [
            (
                RevisionKey(entry.skill_id, entry.requested_seq),
                entry.source_id,
                entry.path,
                f"ingest failed unexpectedly: {type(error).__name__}: {error}",
            )
            for entry in entries
        ]
    )
    send_after_ingest(services, [], services.coordinator.count_pending(INGEST.name))
