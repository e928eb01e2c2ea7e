"""Retrieve and score: the candidates for a task, with exact scores (spec §5.2)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from config.errors import TransientError
from search.completed_terms import tag_terms
from search.protocol import Filters, LexicalSearch, VectorSearch
from search.scoring.format_promotion import has_dedicated_skills
from search.scoring.score_candidates import (
    Candidate,
    ScoredCandidates,
    long_task_weight,
    score_candidates,
)
from search.scoring.weights import ScoringWeights
from skills.record import RevisionKey
from skills.skill_policy import PolicyViolation
from tasks.query.context import QueryContext
from tasks.query.process_state.published_library import LibrarySnapshot
from tasks.query.ranking import Candidates, Ranking, TaskQuery, WithheldHit, build_ranking
from tasks.refine.completion.completions import completion_origins

_MAX_ENGINE_TERMS = 50
"""Terms of a task that an engine searches at most; exact scores use all of them. Each term costs
the engine five lookups, and 50 find what all the terms of a long task find."""

_FORMAT_CANDIDATES = 20
"""Candidates for a file format that has its own skills: the task may mention it just once."""

_LONG_TASK_NEIGHBOUR_CUT = 0.75
"""Share of the nearest neighbours that a long task does without: its words say enough."""


def retrieve(context: QueryContext, query: TaskQuery) -> Candidates:
    """Published revisions that the engine finds by words or near the task's vector.

    Where the engine does not answer, every published skill is a candidate, by words alone; raises
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
    settings, snapshot, understanding = (
        context.services.settings.retrieval,
        query.snapshot,
        query.understanding,
    )
    # The more rivals, the lower the engine's own score may rank what is needed.
    limit = max(settings.candidates, int(settings.share * len(snapshot.pointers)))
    long = long_task_weight(understanding, ScoringWeights())
    weights = _select_engine_terms(query)
    origins = completion_origins(context.services.settings.language_model)
    searches: list[LexicalSearch | VectorSearch] = []
    # Every filter is searched on its own, all in one round trip.
    for filters in context.policy_filter.expand_filters(context.filters, snapshot.pointers):
        if weights:
            searches.append(LexicalSearch(weights, limit, filters))
            searches += [
                LexicalSearch(tag_terms(weights, origin), limit, filters, completed=True)
                for origin in origins
            ]
        searches += [
            LexicalSearch(dict.fromkeys(words, 1.0), _FORMAT_CANDIDATES, filters)
            for words in understanding.formats.values()
            if has_dedicated_skills(words, snapshot.statistics)
        ]
        if query.vector is not None and settings.neighbours:
            near = max(round(settings.neighbours * (1.0 - _LONG_TASK_NEIGHBOUR_CUT * long)), 1)
            searches += [VectorSearch(query.vector, field, near, filters) for field in (0, 1)]
    found = context.services.index.search_many(searches)
    # A superseded revision that is still in the index counts as a hit of its skill.
    ids = dict.fromkeys(hit.key.skill_id for hits in found for hit in hits)
    return [
        RevisionKey(skill_id, snapshot.pointers[skill_id])
        for skill_id in ids
        if skill_id in snapshot.pointers
    ]


def _select_engine_terms(query: TaskQuery) -> dict[str, float]:
    """The task's terms that the library knows with their weights, the heaviest by weight x idf."""
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
        if not filters.source or skill_id.partition(":")[0] in filters.source
    ]


def score(
    context: QueryContext, candidates: Candidates, violations: Mapping[str, PolicyViolation]
) -> Ranking:
    """The ranking of the candidates by their exact scores.

    violations: the candidates that the policy withholds, by skill_id. They are scored apart, to
    report where they would rank.
    """
    keys = candidates.keys
    allowed = [key for key in keys if key.skill_id not in violations] if violations else keys
    scored = _score(context, candidates.query, allowed)
    ranking = build_ranking(candidates.query, scored)
    if not violations:
        return ranking
    withheld = [key for key in keys if key.skill_id in violations]
    scored = _score(context, candidates.query, withheld)
    return replace(ranking, withheld=_withheld_hits(scored, ranking, violations))


def _score(context: QueryContext, query: TaskQuery, keys: list[RevisionKey]) -> ScoredCandidates:
    cosines: dict[RevisionKey, tuple[float, float]] = {}
    if query.vector is not None:
        for key, pair in context.services.index.get_skill_vectors(keys).items():
            if pair.any():
                description, head = (pair @ query.vector).tolist()
                cosines[key] = (description, head)
    statistics = query.snapshot.statistics
    records = statistics.get_records(keys)
    found = [Candidate(key, record, cosines.get(key)) for key, record in records.items()]
    return score_candidates(
        query.understanding, found, statistics, without=frozenset(context.request.without)
    )


def _withheld_hits(
    scored: ScoredCandidates, ranking: Ranking, violations: Mapping[str, PolicyViolation]
) -> tuple[WithheldHit, ...]:
    """Withheld candidates with the place they would have. Scores do not depend on which
    candidates are scored together."""
    ascending = sorted(-hit.score for hit in ranking.hits)
    best = max([*scored.scores.tolist()[:1], *(-score for score in ascending[:1])], default=0.0)
    return tuple(
        WithheldHit(
            key.skill_id,
            violations[key.skill_id],
            rank=bisect_left(ascending, -score),
            relative_score=score / best if best > 0 else 0.0,
            evidence=float(scored.evidence[number]),
            best_cosine=float(scored.best_cosine[number]),
        )
        for number, (key, score) in enumerate(zip(scored.keys, scored.scores.tolist(), strict=True))
        if score > 0
    )
