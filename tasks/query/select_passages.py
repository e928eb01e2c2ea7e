"""Select passages: what the task needs of each chosen skill (spec §5.6)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from search.protocol import StoredRevision, Vector
from search.text.query_understanding import Understanding
from skills.passages import (
    DEFAULT_WEIGHTS,
    PassageInput,
    PassageQuery,
    passage_texts,
    passage_utilities,
    score_passages,
    select_all,
    select_mmr,
)
from skills.passages import select_passages as select_by_gap
from skills.record import RevisionKey
from tasks.encode import encode_cached, supports_language
from tasks.ingest.embed_sections import embed_revisions
from tasks.query.choose import ChosenSkill
from tasks.query.context import QueryContext
from tasks.query.read_chosen import ChosenRevisions
from tasks.sources.readers import get_skill_location

_WHOLE_TOKENS = 300
"""A skill up to this length is sent whole: choosing would save nothing."""

_WHOLE_SHARE = 0.8
"""Share of the budget that whole skills may take: headers and dependencies need some too."""

_TOKENS_PER_SECOND = 6000.0
"""Speed of one thread of a common processor; it only decides whether to begin embedding."""


@dataclass(frozen=True, slots=True)
class SkillPassages:
    """A chosen skill with its passages in the order of their worth.

    path: where its SKILL.md is, for the reader. passages: (passage index, worth above 0).
    paged_by: as in the bundle.
    """

    chosen: ChosenSkill
    revision: StoredRevision
    path: str
    passages: tuple[tuple[int, float], ...]
    paged_by: str


def select_passages(context: QueryContext, chosen: ChosenRevisions) -> list[SkillPassages]:
    """The chosen skills that could be read, each with the passages that the task needs.

    Sections without vectors are embedded first, as far as the time allows; the passages of the
    other skills are chosen by words alone, which is noted in the degradations.
    """
    settings = context.services.settings.passages
    vectors: dict[RevisionKey, Vector] = {}
    vector = None
    if context.is_on("paging"):
        vector = chosen.ranking.vector
        keys = [revision.key for revision in chosen.revisions.values()]
        vectors = context.services.index.get_section_vectors(keys)
        if vector is not None:
            vectors |= _embed_missing_sections(context, chosen, vectors)
    query = make_passage_query(chosen.ranking.understanding, vector)
    whole = _list_whole(context, chosen)
    selected = []
    for skill in chosen.choice.chosen:
        revision = chosen.revisions.get(skill.skill_id)
        if revision is None:
            continue
        passage_vectors: Vector | None = None
        if settings.method == "mmr" and vector is not None:
            texts = passage_texts(revision.parsed)
            passage_vectors = encode_cached(context.services, texts, in_bulk=False)
        path = get_skill_location(context.policy_filter.sources, skill.skill_id)
        passages, paged_by = select_skill_passages(
            revision,
            query,
            vectors.get(revision.key),
            settings.gap,
            passage_vectors,
            send_whole=settings.method == "full" or skill.skill_id in whole,
        )
        if skill.skill_id in whole:  # before any passage of a skill that only helps
            passages = tuple((index, max(worth, 1.0)) for index, worth in passages)
        selected.append(SkillPassages(skill, revision, path, passages, paged_by))
    return selected


def _list_whole(context: QueryContext, chosen: ChosenRevisions) -> set[str]:
    """The skills to send whole: those that the language model calls needed, if it says that they
    cover the task and if all of them fit: one skill whole helps more than ten in shreds."""
    selection = chosen.ranking.selection
    if selection is None or not selection.complete:
        return set()
    needed = {name: chosen.revisions[name] for name in selection.needed if name in chosen.revisions}
    tokens = sum(revision.parsed.record.tokens for revision in needed.values())
    return set(needed) if tokens <= _WHOLE_SHARE * context.budget else set()


def _embed_missing_sections(
    context: QueryContext, chosen: ChosenRevisions, known: Mapping[RevisionKey, Vector]
) -> dict[RevisionKey, Vector]:
    """Section vectors of the chosen skills that have none yet, as many as the time allows.

    A process that may write stores them.
    """
    services = context.services
    encoder = services.encoder.get()
    seconds = services.settings.passages.milliseconds / 1000
    end = time.monotonic() + min(seconds, context.deadline.remaining() / 2)
    vectors: dict[RevisionKey, Vector] = {}
    skipped = 0
    for revision in chosen.revisions.values():
        if revision.key in known or not revision.section_hashes:
            continue
        if not supports_language(encoder, revision.parsed):
            continue
        tokens = sum(passage.tokens for passage in revision.parsed.passages)
        if time.monotonic() + tokens / _TOKENS_PER_SECOND > end:
            skipped += 1
            continue
        vectors |= embed_revisions(services, [revision], in_bulk=False)
    if skipped:
        context.degradations.add(
            f"{skipped} of {len(chosen.revisions)} skills have no section vectors yet: "
            "their passages were chosen by words alone"
        )
    return vectors


def make_passage_query(understanding: Understanding, vector: Vector | None) -> PassageQuery:
    """The task as passages are scored for it; without a vector they are scored by words alone."""
    order = np.argsort(understanding.ids)
    return PassageQuery(vector, understanding.ids[order], understanding.weights[order])


def select_skill_passages(
    revision: StoredRevision,
    query: PassageQuery,
    section_vectors: Vector | None,
    gap: float,
    passage_vectors: Vector | None = None,
    *,
    send_whole: bool = False,
) -> tuple[tuple[tuple[int, float], ...], str]:
    """Which passages of a skill the query needs: (index, worth) of each, and `paged_by`.

    With `passage_vectors` SkillPager's rule chooses, else the score gap. A skill of at most 300
    tokens is sent whole, and so is any with `send_whole`.
    """
    parsed, terms = revision.parsed, revision.passage_terms
    page = PassageInput(
        parsed, terms.offsets, terms.terms, terms.counts, section_vectors, passage_vectors
    )
    scores = score_passages(query, page, DEFAULT_WEIGHTS)
    total = sum(passage.tokens for passage in parsed.passages)
    if send_whole or total <= _WHOLE_TOKENS:
        indexes, paged_by = select_all(page), "whole"
    elif passage_vectors is not None:
        indexes, paged_by = select_mmr(query, page), "vectors"
    else:
        indexes = select_by_gap(scores, page, gap)
        paged_by = "vectors" if scores.dense else "words"
    utility = passage_utilities(scores, page)[indexes].tolist()
    return tuple(zip(indexes, utility, strict=True)), paged_by
