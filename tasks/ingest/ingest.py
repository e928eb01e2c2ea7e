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
from skills.parsing.parse_skill import PARSER_VERSION
from skills.record import ParsedSkill, RevisionKey
from skills.review import collect_rule_ids
from tasks.history.keep import keep_superseded
from tasks.ingest.held.pinned import find_returned, hold_pinned, read_pinned, request_new_seqs
from tasks.ingest.held.reviewed import HELD_REASON, find_staying, hold_for_review
from tasks.ingest.next_tasks import send_after_ingest, send_ingest, send_refine
from tasks.ingest.preparation.prepare import (
    PreparationRequest,
    PreparedSkill,
    UnreadableSkill,
    make_preparation_settings,
    parse_stored,
    prepare_parsed,
)
from tasks.ingest.read_folders import PendingSkill, read_folders, withdraw_gone
from tasks.metrics_recorder import time_stage
from tasks.policies import INGEST, Deadline, DeadlineExceededError, PoisonTaskError
from tasks.record_work import record_searchable
from tasks.refine.completion.completions import find_outdated, read_completions
from tasks.services import Services
from tasks.sources.protocol import SkillFolder

PublishedSkill = tuple[RevisionKey, bool]
"""A published revision, with True if its skill vectors are stored."""


@dataclass(slots=True)
class SkillWork:
    """A skill to publish, with the data for the later stages.

    replaces: seq of the revision that alone it may replace, 0 for any (`Publication`).
    """

    key: RevisionKey
    entry: CatalogEntry
    content_hash: str
    prepared: PreparedSkill
    replaces: int = 0

    @property
    def parsed(self) -> ParsedSkill:
        """The skill as it was parsed."""
        return self.prepared.parsed


def ingest(services: Services, deadline: Deadline, skill_ids: Sequence[str]) -> dict[str, object]:
    """Publish the content that these skills have in their sources now; idempotent.

    Skills without an open request are skipped. Each other skill takes a new seq before its content
    is read, so that of two runs the run with the higher seq has read the newer content. A skill
    that cannot be read becomes a failed entry, and does not affect the others; so does a skill
    that fails unexpectedly, if it is the only one. Raises TransientError for skills that may be
    readable later, once the others are published.
    """
    published: list[PublishedSkill] = []
    unavailable: list[TransientError] = []
    entries: list[CatalogEntry] = []
    try:
        entries = [entry for entry in services.graph.get_entries(skill_ids) if entry.awaits_ingest]
        with time_stage(services.metrics, INGEST.name, "read"):
            skills = _read(services, entries, deadline, unavailable) if entries else []
        published = publish_skills(services, skills, deadline) if skills else []
    except Exception as error:
        if len(skill_ids) == 1 and not _may_pass(error):
            _record_unexpected_failure(services, entries, error)
        raise
    finally:
        _send_next_tasks(services, published, services.coordinator.add_pending(INGEST.name, -1))
    if unavailable:
        raise unavailable[0]
    return {"published": len(published)}


def _send_next_tasks(services: Services, published: Sequence[PublishedSkill], others: int) -> None:
    """Send the tasks that link, embed and refine published skills.

    others: ingest tasks that still run or wait.
    """
    lacking = [key for key, has_vectors in published if not has_vectors]
    send_after_ingest(services, lacking, others)
    if services.sends_refine and services.settings.language_model.offline_stages:
        skill_ids = [key.skill_id for key, _ in published]
        send_refine(services.coordinator, services.send_task, skill_ids)


def _read(
    services: Services,
    entries: Sequence[CatalogEntry],
    deadline: Deadline,
    unavailable: list[TransientError],
) -> list[SkillWork]:
    """Read and parse the skills that have to be published; record the others in the catalog.

    unavailable: gets the errors of skills that cannot be read now; their requests stay open.
    """
    graph = services.graph
    read = read_folders(services, entries, deadline)
    unavailable += read.unavailable
    staying: dict[str, KeptRevision] = read_pinned(services, entries)
    hold_pinned(services, read.folders, staying)
    reviewed = hold_for_review(services, read.folders, staying)
    staying |= reviewed.kept | find_staying(services, [entry for _, entry in read.failures])
    failures = reviewed.unreadable | {
        place: reason for place, reason in read.failures.items() if place[1].skill_id not in staying
    }
    wanted = {
        place: folder.content_hash
        for place, folder in read.folders.items()
        if place not in reviewed.new and place not in reviewed.unreadable
    }
    for place in (*read.folders, *read.failures):
        if (kept := staying.get(place[1].skill_id)) is not None:
            wanted[place] = kept.content_hash
    unchanged = _find_unchanged(services, wanted)
    for key in find_returned(services, read.folders, unchanged):
        del unchanged[key]
    changed = {place: hashed for place, hashed in wanted.items() if place[0] not in unchanged}
    skills = []
    with span("ingest prepare", {"skillbus.skills": len(changed)}):
        for place, outcome in _prepare(services, changed, read.folders, staying, deadline):
            if isinstance(outcome, UnreadableSkill):
                failures[place] = outcome.reason
            else:
                skills.append(SkillWork(*place, changed[place], outcome))
    withdraw_gone(services, read.gone)
    _record_failures(services, failures)
    graph.record_held(_to_rows(dict.fromkeys(reviewed.new, HELD_REASON)))
    if unchanged:
        graph.mark_unchanged(list(unchanged), list(unchanged.values()))
    return skills


def _record_failures(services: Services, failures: Mapping[PendingSkill, str]) -> None:
    if failures:
        keep_superseded(services, [entry for _, entry in failures])
        services.graph.record_failures(_to_rows(failures))


def _to_rows(reasons: Mapping[PendingSkill, str]) -> list[tuple[RevisionKey, str, str, str]]:
    return [(key, entry.source_id, entry.path, reason) for (key, entry), reason in reasons.items()]


def _prepare(
    services: Services,
    changed: Mapping[PendingSkill, str],
    folders: Mapping[PendingSkill, SkillFolder],
    staying: Mapping[str, KeptRevision],
    deadline: Deadline,
) -> Iterator[tuple[PendingSkill, PreparedSkill | UnreadableSkill]]:
    """Yield the outcome of each changed skill, from its folder; for a skill that stays at a
    revision, from the text of that revision. changed: content hash by skill."""
    completions = read_completions(services, list(changed.values()))
    read = [place for place in changed if place[1].skill_id not in staying]
    requests = [
        PreparationRequest(place[1].path, folders[place], completions.get(changed[place], ()))
        for place in read
    ]
    settings = make_preparation_settings(services.settings)
    outcomes = services.preparer.prepare(requests, settings, deadline)
    for place, outcome in zip(read, outcomes, strict=True):
        services.coordinator.yield_to_queries()
        yield place, outcome
    for place, content_hash in changed.items():
        if (kept := staying.get(place[1].skill_id)) is not None:
            parsed = parse_stored(place[1].path, kept.parsed, settings)
            stored = completions.get(content_hash, ())
            yield place, prepare_parsed(parsed.with_completions(stored))


def _find_unchanged(
    services: Services, wanted: Mapping[PendingSkill, str]
) -> dict[RevisionKey, str]:
    """Return the skills whose published revision would not change: key -> content hash.

    The document of such a revision is complete, of this version of the parser, and has the stored
    completions. wanted: content hash by skill.
    """
    same = {
        entry.key: (key, content_hash)
        for (key, entry), content_hash in wanted.items()
        if entry.seq
        and content_hash == entry.content_hash
        and entry.parser_version >= PARSER_VERSION
    }
    stored = services.index.complete_keys(list(same))
    published = {key: content_hash for key, (_, content_hash) in same.items() if key in stored}
    outdated = find_outdated(services, published)
    return dict(same[key] for key in published if key not in outdated)


def publish_skills(
    services: Services, skills: Sequence[SkillWork], deadline: Deadline
) -> list[PublishedSkill]:
    """Publish skills; skills whose vectors are not known yet get them later (`embed_skills`)."""
    metrics, model = services.metrics, services.encoder_model
    deadline.check("read")
    vectors = _find_known_vectors(services, skills)
    with time_stage(metrics, INGEST.name, "index"):
        services.index.add([_build_document(work, vectors.get(work.key), model) for work in skills])
    kept = _keep_section_vectors(services, skills, model)
    deadline.check("index")
    again = {
        work.key: work.entry for work in skills if work.content_hash == work.entry.content_hash
    }
    keep_superseded(services, [work.entry for work in skills if work.key not in again])
    with time_stage(metrics, INGEST.name, "publish"):
        published = services.graph.publish(
            [_build_publication(work, work.key in vectors) for work in skills]
        )
        if kept:
            services.graph.mark_embedded(kept)
    request_new_seqs(services, [(key, again[key]) for key in published if key in again])
    requested = {w.key: w.entry.requested_seq for w in skills if w.entry.awaits_ingest}
    record_searchable(services, [requested[key] for key in published if key in requested])
    return [(key, key in vectors) for key in published]


def _find_known_vectors(
    services: Services, skills: Sequence[SkillWork]
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
    services: Services, skills: Sequence[SkillWork], model: str
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


def _build_document(work: SkillWork, vectors: Vector | None, model: str) -> SkillDocument:
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


def _build_publication(work: SkillWork, has_vectors: bool) -> Publication:
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
        parser_version=PARSER_VERSION,
        replaces=work.replaces,
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

    A single skill that ended its worker is recorded as failed; `ingest` records other failures.
    """
    if len(skill_ids) > 1 and not _may_pass(error):
        for skill_id in skill_ids:
            send_ingest(services, [skill_id])
    elif isinstance(error, PoisonTaskError):
        entries = services.graph.get_entries(skill_ids)
        _record_unexpected_failure(
            services, [entry for entry in entries if entry.awaits_ingest], error
        )
        send_after_ingest(services, [], services.coordinator.count_pending(INGEST.name))


def _may_pass(error: BaseException) -> bool:
    """Return whether the requests stay open, so that the reconciler sends them again."""
    return isinstance(error, TransientError) and not isinstance(error, DeadlineExceededError)


def _record_unexpected_failure(
    services: Services, entries: Sequence[CatalogEntry], error: BaseException
) -> None:
    """Record that skills failed unexpectedly; those that stay at a revision stay published.

    Closes the requests that the entries show, and no later ones. In a process that stops they stay
    open: its stores close while tasks still run.
    """
    if services.stopping.is_set():
        return
    reason = f"ingest failed unexpectedly: {type(error).__name__}: {error}"
    staying = find_staying(services, [entry for entry in entries if entry.seq])
    keys = {entry: RevisionKey(entry.skill_id, entry.requested_seq) for entry in entries}
    services.graph.mark_unchanged([keys[one] for one in entries if one.skill_id in staying])
    _record_failures(
        services, {(keys[one], one): reason for one in entries if one.skill_id not in staying}
    )
