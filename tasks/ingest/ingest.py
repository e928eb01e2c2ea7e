"""Ingest: parse, classify, embed, index and publish a batch of skills (spec §4.2–4.6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from config.errors import PermanentError, TransientError
from graph.links.mentions import find_mentions
from graph.protocol import CatalogEntry, Publication
from search.protocol import Filters, SkillDocument, Vector
from search.skill_analysis import (
    SkillAnalysis,
    analyse_skill,
    body_terms,
    description_terms,
    section_text_hashes,
    skill_texts,
)
from search.text.background_frequencies import load_background
from skills import licences
from skills.parsing.parse_skill import parse_skill
from skills.record import ParsedSkill, RevisionKey
from tasks.encode import encode_cached, supports_language
from tasks.ingest.embed_sections import send_embed_tasks, send_unembedded_skills
from tasks.ingest.role_classifier import load_role_classifier
from tasks.measures import time_stage
from tasks.policies import INGEST, LINK, Deadline, DeadlineExceededError
from tasks.services import Services
from tasks.sources.directory import to_parse_limits
from tasks.sources.protocol import SkillGoneError
from tasks.sources.readers import ReaderPool


@dataclass(slots=True)
class _SkillWork:
    """One skill on its way through the stages."""

    key: RevisionKey
    entry: CatalogEntry
    content_hash: str
    parsed: ParsedSkill
    analysis: SkillAnalysis


def ingest(services: Services, deadline: Deadline, skill_ids: Sequence[str]) -> dict[str, object]:
    """Bring skills to the revision that is on disk now; idempotent, and one run for a burst.

    Each skill takes a fresh seq before its content is read, so that of two runs the one with the
    higher seq has seen the newer content. A skill that cannot be read is a failed entry and
    touches no other.
    """
    published: list[RevisionKey] = []
    try:
        entries = [entry for entry in services.graph.get_entries(skill_ids) if needs_ingest(entry)]
        with time_stage(services.metrics, INGEST.name, "read"):
            skills = _read(services, entries, deadline) if entries else []
        published = _publish(services, skills, deadline) if skills else []
    finally:
        _send_next_tasks(services, published, services.coordinator.add_ingest_tasks(-1))
    return {"published": len(published)}


def _send_next_tasks(services: Services, published: Sequence[RevisionKey], others: int) -> None:
    """Linking and paging of a burst or a large library start once all of it is searchable."""
    if not others:
        services.send_task(LINK.name, [])
    if services.coordinator.pending_embed_tasks:
        send_embed_tasks(services, [key.skill_id for key in published])
    elif not others:
        send_unembedded_skills(services)


def needs_ingest(entry: CatalogEntry) -> bool:
    """Whether the catalog wants an ingest that nothing has served yet."""
    return entry.requested_seq > entry.seq


def _read(
    services: Services, entries: Sequence[CatalogEntry], deadline: Deadline
) -> list[_SkillWork]:
    graph = services.graph
    limits = to_parse_limits(services.settings.limits)
    classifier = load_role_classifier(services.settings.roles.weights)
    skills, failures, gone = [], [], []
    published = [RevisionKey(entry.skill_id, entry.seq) for entry in entries if entry.seq]
    stored = services.index.complete_keys(published)
    same: dict[RevisionKey, str] = {}
    seqs = graph.allocate_sequence(len(entries))
    # Asked for after the numbers were taken: where a source stands is part of what is read.
    sources = {source.source_id: source for source in graph.list_sources()}
    with ReaderPool(sources, services.settings) as readers:
        for entry, seq in zip(entries, seqs, strict=True):
            deadline.check("read")
            services.coordinator.yield_to_queries()
            key = RevisionKey(entry.skill_id, seq)
            try:
                folder = readers.get(entry.source_id).read(entry.path)
                unchanged = folder.content_hash == entry.content_hash
                if unchanged and RevisionKey(entry.skill_id, entry.seq) in stored:
                    same[key] = folder.content_hash
                    continue
                parsed = parse_skill(
                    entry.path,
                    folder.content,
                    folder.files,
                    limits,
                    classifier,
                    folder.sibling_files,
                )
            except SkillGoneError:
                gone.append(key)
            except PermanentError as error:
                failures.append((key, entry.source_id, entry.path, str(error)))
            else:
                skills.append(
                    _SkillWork(key, entry, folder.content_hash, parsed, analyse_skill(parsed))
                )
    if gone:
        graph.remove(gone)
    if failures:
        graph.record_failures(failures)
    if same:
        graph.mark_unchanged(list(same), list(same.values()))
    return skills


def _publish(services: Services, skills: list[_SkillWork], deadline: Deadline) -> list[RevisionKey]:
    metrics = services.metrics
    with time_stage(metrics, INGEST.name, "embed"):
        vectors = _embed(services, [work.parsed for work in skills])
    deadline.check("embed")
    model = services.encoder.get().model
    with time_stage(metrics, INGEST.name, "index"):
        services.index.add(
            [_build_document(work, pair, model) for work, pair in zip(skills, vectors, strict=True)]
        )
    deadline.check("index")
    with time_stage(metrics, INGEST.name, "publish"):
        return services.graph.publish([_build_publication(work) for work in skills])


def _embed(services: Services, parsed: Sequence[ParsedSkill]) -> Vector:
    """Skill vectors (skills, 2, dimension); zero where the encoder does not know the language."""
    encoder = services.encoder.get()
    vectors = np.zeros((len(parsed), 2, encoder.dimension), np.float32)
    known = [place for place, skill in enumerate(parsed) if supports_language(encoder, skill)]
    if known:
        texts = [text for place in known for text in skill_texts(parsed[place])]
        vectors[known] = encode_cached(services, texts).reshape(len(known), 2, encoder.dimension)
    return vectors


def _build_document(work: _SkillWork, vectors: Vector, model: str) -> SkillDocument:
    record = work.parsed.record
    return SkillDocument(
        key=work.key,
        content_hash=work.content_hash,
        parsed=work.parsed,
        fields=work.analysis.fields,
        forward=work.analysis.forward,
        passage_terms=work.analysis.passage_terms,
        vectors=vectors,
        section_hashes=section_text_hashes(model, work.parsed),
        filters=Filters(
            source=(work.entry.source_id,),
            licence=licences.licence_names(record.licence),
            language=(record.language,),
            tool=tuple(dict.fromkeys((*record.allowed_tools, *record.tooling))),
        ),
    )


def _build_publication(work: _SkillWork) -> Publication:
    record = work.parsed.record
    background = load_background()
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
        mentions=find_mentions(work.parsed),
        body_terms=body_terms(work.analysis, background),
        description_terms=description_terms(work.analysis, background),
    )


def split_ingest_batch(services: Services, skill_ids: Sequence[str], error: BaseException) -> None:
    """After an error that is nobody's in particular: each skill alone, then by name.

    A batch is sent again one skill at a time; a single skill that still fails is recorded as
    failed with the error, so that one poisonous skill never holds up others.
    """
    waits = isinstance(error, TransientError)
    if waits and not isinstance(error, DeadlineExceededError):
        # The entries wait in the catalog; the reconciler sends them again.
        return
    if len(skill_ids) > 1:
        for skill_id in skill_ids:
            services.coordinator.add_ingest_tasks(1)
            services.send_task(INGEST.name, [skill_id])
        return
    entries = services.graph.get_entries(skill_ids)
    seqs = services.graph.allocate_sequence(len(entries))
    services.graph.record_failures(
        [
            (
                RevisionKey(entry.skill_id, seq),
                entry.source_id,
                entry.path,
                f"ingest failed unexpectedly: {type(error).__name__}: {error}",
            )
            for entry, seq in zip(entries, seqs, strict=True)
        ]
    )
    services.send_task(LINK.name, [])
    if not services.coordinator.pending_ingest_tasks:
        send_unembedded_skills(services)
