"""Ingest: parse, classify, embed, index and publish a batch of skills (spec §4.2–4.6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from config.errors import PermanentError, TransientError
from graph.links.mentions import find_mentions
from graph.protocol import Entry, Publication
from search.documents import (
    Analysis,
    analyse,
    description_terms,
    section_texts_hashes,
    signature,
    skill_texts,
)
from search.protocol import Filters, SkillDocument, Vector
from search.scoring.background import load_background
from skills import licences
from skills.parsing.parse_skill import parse_skill
from skills.record import ParsedSkill, RevisionKey
from tasks.embedding import encode_cached, is_known
from tasks.ingest.embed_sections import send_pages, send_unpaged
from tasks.ingest.role_classifier import role_classifier
from tasks.measures import timed
from tasks.policies import INGEST, LINK, Deadline, DeadlineExceededError
from tasks.services import Services
from tasks.sources.directory import SkillGoneError, parse_limits
from tasks.sources.readers import Readers


@dataclass(slots=True)
class _Work:
    """One skill on its way through the stages."""

    key: RevisionKey
    entry: Entry
    content_hash: str
    parsed: ParsedSkill
    analysis: Analysis


def ingest(services: Services, deadline: Deadline, skill_ids: Sequence[str]) -> dict[str, object]:
    """Bring skills to the revision that is on disk now; idempotent, and one run for a burst.

    Each skill takes a fresh seq before its content is read, so that of two runs the one with the
    higher seq has seen the newer content. A skill that cannot be read is a failed entry and
    touches no other.
    """
    published: list[RevisionKey] = []
    try:
        entries = [entry for entry in services.graph.entries(skill_ids) if is_waiting(entry)]
        with timed(services.measures, INGEST.name, "read"):
            works = _read(services, entries, deadline) if entries else []
        published = _publish(services, works, deadline) if works else []
    finally:
        _hand_on(services, published, services.activity.ingest(-1))
    return {"published": len(published)}


def _hand_on(services: Services, published: Sequence[RevisionKey], others: int) -> None:
    """Linking and paging of a burst or a large library start once all of it is searchable."""
    if not others:
        services.send(LINK.name, [])
    if services.activity.paging:
        send_pages(services, [key.skill_id for key in published])
    elif not others:
        send_unpaged(services)


def is_waiting(entry: Entry) -> bool:
    """Whether the catalog wants an ingest that nothing has served yet."""
    return entry.wanted_seq > entry.seq


def _read(services: Services, entries: Sequence[Entry], deadline: Deadline) -> list[_Work]:
    graph = services.graph
    limits = parse_limits(services.settings.limits)
    classifier = role_classifier(services.settings.roles.weights)
    works, failures, gone = [], [], []
    published = [RevisionKey(entry.skill_id, entry.seq) for entry in entries if entry.seq]
    stored = services.index.whole(published)
    same: dict[RevisionKey, str] = {}
    seqs = graph.take_seqs(len(entries))
    # Asked for after the numbers were taken: where a source stands is part of what is read.
    sources = {source.source_id: source for source in graph.sources()}
    with Readers(sources, services.settings) as readers:
        for entry, seq in zip(entries, seqs, strict=True):
            deadline.check("read")
            services.activity.let_queries_pass()
            key = RevisionKey(entry.skill_id, seq)
            try:
                folder = readers.of(entry.source_id).read(entry.path)
                unchanged = folder.content_hash == entry.content_hash
                if unchanged and RevisionKey(entry.skill_id, entry.seq) in stored:
                    same[key] = folder.content_hash
                    continue
                parsed = parse_skill(
                    entry.path, folder.content, folder.files, limits, classifier, folder.beside
                )
            except SkillGoneError:
                gone.append(key)
            except PermanentError as error:
                failures.append((key, entry.source_id, entry.path, str(error)))
            else:
                works.append(_Work(key, entry, folder.content_hash, parsed, analyse(parsed)))
    if gone:
        graph.remove(gone)
    if failures:
        graph.fail(failures)
    if same:
        graph.confirm(list(same), list(same.values()))
    return works


def _publish(services: Services, works: list[_Work], deadline: Deadline) -> list[RevisionKey]:
    measures = services.measures
    with timed(measures, INGEST.name, "embed"):
        vectors = _embed(services, [work.parsed for work in works])
    deadline.check("embed")
    model = services.encoder.get().model
    with timed(measures, INGEST.name, "index"):
        services.index.add(
            [_document(work, pair, model) for work, pair in zip(works, vectors, strict=True)]
        )
    deadline.check("index")
    with timed(measures, INGEST.name, "publish"):
        return services.graph.publish([_publication(work) for work in works])


def _embed(services: Services, parsed: Sequence[ParsedSkill]) -> Vector:
    """Skill vectors (skills, 2, dimension); zero where the encoder does not know the language."""
    encoder = services.encoder.get()
    vectors = np.zeros((len(parsed), 2, encoder.dimension), np.float32)
    known = [place for place, skill in enumerate(parsed) if is_known(encoder, skill)]
    if known:
        texts = [text for place in known for text in skill_texts(parsed[place])]
        vectors[known] = encode_cached(services, texts).reshape(len(known), 2, encoder.dimension)
    return vectors


def _document(work: _Work, vectors: Vector, model: str) -> SkillDocument:
    record = work.parsed.record
    return SkillDocument(
        key=work.key,
        content_hash=work.content_hash,
        parsed=work.parsed,
        fields=work.analysis.fields,
        forward=work.analysis.forward,
        passage_terms=work.analysis.passage_terms,
        vectors=vectors,
        section_hashes=section_texts_hashes(model, work.parsed),
        filters=Filters(
            source=(work.entry.source_id,),
            licence=licences.names(record.licence),
            language=(record.language,),
            tool=tuple(dict.fromkeys((*record.allowed_tools, *record.tooling))),
        ),
    )


def _publication(work: _Work) -> Publication:
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
        scanner=record.scanner,
        tokens=record.tokens,
        language=record.language,
        licence=record.licence,
        mentions=find_mentions(work.parsed),
        signature=signature(work.analysis, background),
        description_terms=description_terms(work.analysis, background),
    )


def split_batch(services: Services, skill_ids: Sequence[str], error: BaseException) -> None:
    """After an error that is nobody's in particular: each skill alone, then by name.

    A batch is sent again one skill at a time; a single skill that still fails is recorded as
    failed with the error, so that one poisonous skill never holds up others.
    """
    if isinstance(error, TransientError) and not isinstance(error, DeadlineExceededError):
        # The entries wait in the catalog; the reconciler sends them again.
        return
    if len(skill_ids) > 1:
        for skill_id in skill_ids:
            services.activity.ingest(1)
            services.send(INGEST.name, [skill_id])
        return
    entries = services.graph.entries(skill_ids)
    seqs = services.graph.take_seqs(len(entries))
    services.graph.fail(
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
    services.send(LINK.name, [])
    if not services.activity.ingesting:
        send_unpaged(services)
