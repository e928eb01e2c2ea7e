"""Made-up skills for large libraries: name and description of one real skill, the text of another.

Term counts, lengths, names that are shared, links and vectors are those of real skills, and no text
is parsed or encoded again, so that a library of hundreds of thousands is made within minutes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from graph.links.mentions import find_mentions
from graph.protocol import SkillGraph
from graph.records import Mention, Publication, Source
from search.protocol import (
    FIELDS,
    ForwardRecord,
    SearchIndex,
    SkillDocument,
    StoredRevision,
    Vector,
)
from search.skill_analysis import SkillAnalysis, analyse_skill, body_terms, description_terms
from search.text.background_frequencies import load_background
from skills.record import RevisionKey
from skills.review import collect_rule_ids
from tasks.sources.uploads.store import UPLOAD_KIND, upload_root

AT_ONCE = 200
SOURCE_PREFIX = "made-"
_NOISE = 0.02
_SECTION_NOISE = 0.04
"""Per dimension: sections of a skill have a cosine of about .6 with each other."""
_STRIDE = 7_919
_HEADINGS = FIELDS.index("headings")
_WORDS = (
    "amber",
    "basalt",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "heron",
    "islet",
    "juniper",
)


@dataclass(frozen=True)
class Original:
    """A real skill. vectors: of the skill; sections: of its sections, None while unknown."""

    revision: StoredRevision
    analysis: SkillAnalysis
    vectors: Vector
    sections: Vector | None

    @cached_property
    def mentions(self) -> tuple[Mention, ...]:
        """The skills that its text names."""
        return find_mentions(self.revision.parsed)

    @cached_property
    def body_terms(self) -> Mapping[int, float]:
        """The heaviest terms of its text."""
        return body_terms(self.analysis, load_background())

    @cached_property
    def description_terms(self) -> Mapping[int, float]:
        """The heaviest terms of its description."""
        return description_terms(self.analysis, load_background())


class MadeSkill(NamedTuple):
    """A made-up skill. sections: the vectors of its sections, None without."""

    document: SkillDocument
    publication: Publication
    sections: Vector | None


def renamed(skill_id: str, turn: int) -> str:
    """The id of the skill that is made of the name of another one in a round.

    It is of a source of its own, as no folder of the real sources has it.
    """
    return f"{SOURCE_PREFIX}{skill_id}-{_WORDS[turn % len(_WORDS)]}-{turn}"


def add_sources(catalog: SkillGraph, graph: SkillGraph) -> None:
    """Add the sources of made-up skills, which no watcher reads: they are uploads."""
    for origin in catalog.list_sources():
        made = f"{SOURCE_PREFIX}{origin.source_id}"
        graph.save_source(Source(made, UPLOAD_KIND, upload_root(made)))


def list_turns(count: int, skills: int) -> Iterator[tuple[int, int]]:
    """(round, skills of it) until there are `skills`, `count` of which are real; the last round
    may be cut."""
    turn, left = 1, skills - count
    while left > 0:
        yield turn, min(left, count)
        turn, left = turn + 1, left - count


def read_originals(
    index: SearchIndex, keys: Sequence[RevisionKey], *, invent_sections: bool
) -> dict[RevisionKey, Original]:
    """Read and analyse real skills. invent_sections: those without section vectors get some near
    the vector of their head."""
    revisions, vectors = index.get_revisions(keys), index.get_skill_vectors(keys)
    sections = index.get_section_vectors(keys)
    found = {}
    for key, revision in revisions.items():
        known = sections.get(key)
        if known is None and invent_sections:
            known = invent_section_vectors(vectors[key], len(revision.section_hashes), key.seq)
        analysis = analyse_skill(revision.parsed)
        found[key] = Original(revision, analysis, vectors[key], known)
    return found


def invent_section_vectors(vectors: Vector, count: int, seed: int) -> Vector | None:
    """Unit vectors near the head of a skill; None for one that has no vectors or no sections."""
    if not count or not vectors.any():
        return None
    noise = np.random.default_rng(seed).normal(0, _SECTION_NOISE, (count, vectors.shape[1]))
    return _unit(vectors[1] + noise)


def make_batches(
    originals: Mapping[RevisionKey, Original],
    turns: Mapping[int, int],
    order: Sequence[RevisionKey],
    graph: SkillGraph,
) -> Iterator[list[MadeSkill]]:
    """Yield the made-up skills of all rounds that are made of `originals`, some at a time.

    turns: how many skills each round has. order: of all real skills.
    """
    places = {key: place for place, key in enumerate(order)}
    keys = sorted(originals, key=places.__getitem__)
    for turn, count in turns.items():
        mine = [key for key in keys if places[key] < count]
        if not mine:
            continue
        shift = turn * _STRIDE % len(keys)
        bodies = [*keys[shift:], *keys[:shift]]
        seqs = graph.allocate_sequence(len(mine))
        yield [
            make_skill(originals[front], originals[body], turn, seq)
            for front, body, seq in zip(mine, bodies, seqs, strict=False)
        ]


def make_skill(front: Original, body: Original, turn: int, seq: int) -> MadeSkill:
    """Return a skill with the name and description of `front` and the text of `body`.

    Its vectors are theirs with some noise.
    """
    skill_id = renamed(front.revision.key.skill_id, turn)
    source_id, _, path = skill_id.partition(":")
    key, record = RevisionKey(skill_id, seq), front.revision.parsed.record
    parsed = replace(
        body.revision.parsed,
        record=replace(
            body.revision.parsed.record, name=record.name, description=record.description
        ),
    )
    analysis = SkillAnalysis(
        (*front.analysis.fields[:_HEADINGS], *body.analysis.fields[_HEADINGS:]),
        _combine(front.analysis.forward, body.analysis.forward),
        body.analysis.passage_terms,
    )
    vectors = np.stack([front.vectors[0], body.vectors[1]])
    document = SkillDocument(
        key=key,
        content_hash=f"{body.revision.content_hash}-{front.revision.content_hash}-{turn}",
        parsed=parsed,
        fields=analysis.fields,
        forward=analysis.forward,
        passage_terms=analysis.passage_terms,
        vectors=with_noise(vectors, seq) if vectors.any(axis=1).all() else vectors,
        section_hashes=tuple(
            blake2b(one + turn.to_bytes(4), digest_size=len(one)).digest()
            for one in body.revision.section_hashes
        ),
        filters=replace(front.revision.filters, source=(source_id,)),
    )
    publication = Publication(
        key=key,
        source_id=source_id,
        path=path,
        content_hash=document.content_hash,
        name=record.name,
        description=record.description,
        tokens=parsed.record.tokens,
        language=parsed.record.language,
        licence=parsed.record.licence,
        safety_level=parsed.record.safety_level,
        scanner_version=parsed.record.scanner,
        mentions=body.mentions,
        body_terms=body.body_terms,
        description_terms=front.description_terms,
        has_vectors=True,
        rules=collect_rule_ids(parsed.record.safety),
        has_scripts=parsed.record.has_scripts,
    )
    sections = None if body.sections is None else with_noise(body.sections, seq)
    return MadeSkill(document, publication, sections)


def _combine(front: ForwardRecord, body: ForwardRecord) -> ForwardRecord:
    """Name, description, word pairs and stated uses of one record, the other fields of another."""
    terms = np.union1d(front.terms, body.terms)
    counts = np.zeros((len(terms), front.counts.shape[1]), dtype=np.uint8)
    counts[terms.searchsorted(front.terms), :_HEADINGS] = front.counts[:, :_HEADINGS]
    counts[terms.searchsorted(body.terms), _HEADINGS:] = body.counts[:, _HEADINGS:]
    there = counts.any(axis=1)
    lengths = np.concatenate([front.lengths[:_HEADINGS], body.lengths[_HEADINGS:]])
    return replace(front, terms=terms[there], counts=counts[there], lengths=lengths)


def with_noise(vectors: Vector, seed: int) -> Vector:
    """Unit vectors near these."""
    return _unit(vectors + np.random.default_rng(seed).normal(0, _NOISE, vectors.shape))


def _unit(vectors: np.ndarray) -> Vector:
    moved = vectors.astype(np.float32)
    return np.asarray(moved / np.linalg.norm(moved, axis=1, keepdims=True))


def save_skills(index: SearchIndex, graph: SkillGraph, batch: Sequence[MadeSkill]) -> None:
    """Index and publish made-up skills, with the vectors of their sections."""
    index.add([one.document for one in batch])
    graph.publish([one.publication for one in batch])
    embedded = []
    for document, _, sections in batch:
        if sections is not None:
            index.save_section_vectors(document.key, document.section_hashes, sections)
            embedded.append(document.key)
    graph.mark_embedded(embedded)


def save_sections(
    index: SearchIndex, graph: SkillGraph, originals: Mapping[RevisionKey, Original]
) -> None:
    """Give real skills the vectors of their sections that they were read with."""
    embedded = []
    for key, one in originals.items():
        if one.sections is not None:
            index.save_section_vectors(key, one.revision.section_hashes, one.sections)
            embedded.append(key)
    graph.mark_embedded(embedded)


def copy_links(catalog: SkillGraph, graph: SkillGraph, ids: Sequence[str], skills: int) -> int:
    """Give the skills of each round the links of the real skills `ids` whose names they have, and
    clear all marks for linking; returns how many links were written."""
    written = 0
    for start in range(0, len(ids), AT_ONCE):
        batch = ids[start : start + AT_ONCE]
        owned = catalog.get_owned_links(batch)
        for turn, count in list_turns(len(ids), skills):
            allowed = set(batch[: max(count - start, 0)])
            links = {
                renamed(owner, turn): [
                    replace(
                        link,
                        owner=renamed(link.owner, turn),
                        source=renamed(link.source, turn),
                        target=renamed(link.target, turn),
                    )
                    for link in some
                ]
                for owner, some in owned.items()
                if owner in allowed
            }
            graph.replace_links(links, [])
            written += sum(map(len, links.values()))
    graph.replace_links({}, graph.list_awaiting_linking(2 * skills))
    return written
