"""Retrieve and score: the candidates for a task, with exact scores."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from config.errors import TransientError
from config.settings import RetrievalSettings, Settings
from search.completed_terms import tag_terms
from search.protocol import Filters, LexicalSearch, Search, SectionSearch, VectorSearch
from search.scoring.cosine_scale import DEFAULT_SCALE, measure_cosine_scale
from search.scoring.format_promotion import has_dedicated_skills
from search.scoring.ranker_factors import load_factors
from search.scoring.score_candidates import (
    ScoredCandidates,
    long_task_weight,
    score_candidates,
)
from search.scoring.weights import ScoringWeights
from skills.record import RevisionKey, get_source_id
from skills.skill_policy import PolicyViolation
from tasks.query.context import QueryContext
from tasks.query.process_state.published_library import LibrarySnapshot
from tasks.query.ranking import (
    Candidates,
    Ranking,
    TaskQuery,
    WithheldHit,
    build_ranking,
    list_hits,
)
from tasks.refine.completion.completions import completion_origins

_MAX_ENGINE_TERMS = 50
"""Maximum terms of a task that an engine searches; exact scores use all of them. Each term costs
the engine five lookups, and 50 terms find what all the terms of a long task find."""

_FORMAT_CANDIDATES = 20
"""Number of candidates for a file format that has its own skills: the task may mention it just
once."""

_MIN_HITS = 400
"""Minimum number of candidates that stay in the ranking. Apart from rerankers no stage reads more
than 200."""

_LONG_TASK_NEIGHBOUR_CUT = 0.75
"""Share of the nearest neighbours that are not searched for a long task, whose words suffice."""

_EXPLAINED_HITS = 5_000
"""Number of hits of the engine that are searched for a skill that the request asks about."""

_NO_COSINES = (np.nan, np.nan)


def retrieve(context: QueryContext, query: TaskQuery) -> Candidates:
    """Return the published revisions that the engine finds by words or near the task's vector.

    If the engine does not answer, every published skill is a candidate, by words alone; raises
    TransientError if the filters need the engine.
    """
    try:
        return Candidates(query, _search(context, query))
    except TransientError as error:
        filters = context.filters
        if not context.can_degrade or filters != Filters(source=filters.source):
            raise
        context.degradations.add(
            "ranked by the words in memory: the search index did not answer", error
        )
        keys = _all_published_keys(query.snapshot, filters)
        return Candidates(replace(query, vector=None), keys)


def _search(context: QueryContext, query: TaskQuery) -> list[RevisionKey]:
    settings, snapshot = context.services.settings.retrieval, query.snapshot
    limit = _count_lexical(settings, query)
    weights = _select_engine_terms(query)
    origins = completion_origins(context.services.settings.language_model)
    searches: list[Search] = []
    # Each filter is a search of its own, all in one round trip.
    for filters in context.policy_filter.expand_filters(context.filters, snapshot.pointers):
        if weights:
            searches.append(LexicalSearch(weights, limit, filters))
            searches += [
                LexicalSearch(tag_terms(weights, origin), limit, filters, completed=True)
                for origin in origins
            ]
        searches += [
            LexicalSearch(dict.fromkeys(words, 1.0), _FORMAT_CANDIDATES, filters)
            for words in query.understanding.formats.values()
            if has_dedicated_skills(words, snapshot.statistics)
        ]
        searches += _vector_searches(query, settings, filters)
    found = context.services.index.search_many(searches)
    # A superseded revision that is still in the index counts as a hit of its skill.
    ids = {hit.key.skill_id: hit.key for hits in found for hit in hits}
    return [
        key if key.seq == seq else RevisionKey(skill_id, seq)
        for skill_id, key in ids.items()
        if (seq := snapshot.pointers.get(skill_id))
    ]


class EngineRanks(NamedTuple):
    """Ranks of a skill in the engine, by the words of a task and by its meaning; 0: not among the
    first `depth`.

    words_limit, meaning_limit: number of hits of each that become candidates; 0: no such search.
    """

    words: int
    meaning: int
    words_limit: int
    meaning_limit: int
    depth: int


def find_engine_ranks(context: QueryContext, query: TaskQuery, skill_id: str) -> EngineRanks:
    """Return the ranks of a skill in the engine, with the filters of the request."""
    settings, filters = context.services.settings.retrieval, context.filters
    weights = _select_engine_terms(query)
    searches: list[Search] = [LexicalSearch(weights, _EXPLAINED_HITS, filters)] if weights else []
    near = _count_neighbours(query, settings.neighbours)
    if query.vector is not None and near:
        searches += [VectorSearch(query.vector, one, _EXPLAINED_HITS, filters) for one in (0, 1)]
    ranks = [
        next((rank for rank, hit in enumerate(hits, 1) if hit.key.skill_id == skill_id), 0)
        for hits in context.services.index.search_many(searches)
    ]
    by_words = ranks.pop(0) if weights else 0
    by_meaning = min((rank for rank in ranks if rank), default=0)
    limit = _count_lexical(settings, query) if weights else 0
    return EngineRanks(by_words, by_meaning, limit, near, _EXPLAINED_HITS)


def _count_lexical(settings: RetrievalSettings, query: TaskQuery) -> int:
    """Return the number of hits by words that become candidates."""
    # With more rivals, the engine's own score may rank a needed skill lower.
    return max(settings.candidates, int(settings.share * len(query.snapshot.pointers)))


def _count_neighbours(query: TaskQuery, most: int) -> int:
    """Return the number of nearest neighbours that become candidates, at most `most`."""
    if query.vector is None or not most:
        return 0
    long = long_task_weight(query.understanding, ScoringWeights())
    return max(round(most * (1.0 - _LONG_TASK_NEIGHBOUR_CUT * long)), 1)


def _vector_searches(
    query: TaskQuery, settings: RetrievalSettings, filters: Filters
) -> Iterator[Search]:
    """Yield the searches by the task's vector."""
    if query.vector is None:
        return
    if near := _count_neighbours(query, settings.neighbours):
        yield from (VectorSearch(query.vector, field, near, filters) for field in (0, 1))
    if near := _count_neighbours(query, settings.section_neighbours):
        yield SectionSearch(query.vector, near, filters)


def _select_engine_terms(query: TaskQuery) -> dict[str, float]:
    """Return the task's terms that the library knows with their weights, the heaviest by weight x
    idf."""
    understanding, statistics = query.understanding, query.snapshot.statistics
    weights = understanding.weights
    known = statistics.document_frequencies(understanding.ids) > 0
    mass = np.where(known, weights * statistics.idf(understanding.ids), 0.0)
    heaviest = np.argsort(-mass, kind="stable")
    chosen = [place for place in heaviest[:_MAX_ENGINE_TERMS].tolist() if known[place]]
    return {understanding.terms[place]: float(weights[place]) for place in chosen}


def _all_published_keys(snapshot: LibrarySnapshot, filters: Filters) -> list[RevisionKey]:
    return [
        RevisionKey(skill_id, seq)
        for skill_id, seq in snapshot.pointers.items()
        if not filters.source or get_source_id(skill_id) in filters.source
    ]


def score(
    context: QueryContext, candidates: Candidates, violations: Mapping[str, PolicyViolation]
) -> Ranking:
    """Return the ranking of the candidates by their exact scores.

    violations: the candidates that the policy withholds, by skill_id. They are scored separately,
    to report their possible rank.
    """
    keys = candidates.keys
    allowed = [key for key in keys if key.skill_id not in violations] if violations else keys
    cosines = _read_cosines(context, candidates.query, keys)
    scale = measure_cosine_scale(context.services.encoder.get()) if cosines else DEFAULT_SCALE
    factors = load_factors(context.services.settings.ranker.weights)
    effects = {name: one.effect for name, one in candidates.query.remembered.items()}

    def score_some(some: list[RevisionKey]) -> ScoredCandidates:
        records = context.services.library.records.pack(some)
        pairs = [cosines.get(key, _NO_COSINES) for key in records.keys]
        return score_candidates(
            candidates.query.understanding,
            records,
            candidates.query.snapshot.statistics,
            without=frozenset(context.request.without),
            scale=scale,
            factors=factors,
            effects=effects,
            cosines=np.array(pairs, dtype=np.float64).reshape(-1, 2),
        )

    limit = _count_hits(context.services.settings)
    ranking = build_ranking(candidates.query, score_some(allowed), limit)
    ranking = replace(ranking, cosines=cosines)
    if not violations:
        return ranking
    scored = score_some([key for key in keys if key.skill_id in violations])
    return replace(ranking, withheld=_withheld_hits(scored, ranking, violations))


def _count_hits(settings: Settings) -> int:
    """Return the number of candidates that a later stage may read. A large library has more than a
    thousand candidates, and each that is kept takes time in every stage."""
    return max(_MIN_HITS, settings.reranker.candidates, settings.reranker.late_candidates)


def _read_cosines(
    context: QueryContext, query: TaskQuery, keys: list[RevisionKey]
) -> dict[RevisionKey, tuple[float, float]]:
    """Return the cosines of the task with both vectors of each skill that has them."""
    if query.vector is None:
        return {}
    cosines = context.services.index.get_skill_cosines(keys, query.vector)
    context.degradations.add_missing_vectors(len(keys) - len(cosines), len(keys))
    # Zero vectors are of texts in a language that the encoder does not know.
    return {key: pair for key, pair in cosines.items() if any(pair)}


def _withheld_hits(
    scored: ScoredCandidates, ranking: Ranking, violations: Mapping[str, PolicyViolation]
) -> tuple[WithheldHit, ...]:
    """Return withheld candidates with the place that they would have. Scores do not depend on which
    candidates are scored together."""
    hits = list(list_hits(scored))
    ascending = sorted(-hit.score for hit in ranking.hits)
    best = max(
        [*(hit.score for hit in hits[:1]), *(-score for score in ascending[:1])], default=0.0
    )
    return tuple(
        WithheldHit(
            hit.key.skill_id,
            violations[hit.key.skill_id],
            rank=bisect_left(ascending, -hit.score),
            relative_score=hit.score / best,
            hit=hit,
        )
        for hit in hits
    )
