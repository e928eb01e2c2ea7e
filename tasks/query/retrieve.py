"""Understand and retrieve: the library's skills ranked for a task (spec §5.1–5.2)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from config.errors import TransientError
from config.settings import RetrievalSettings
from search.protocol import Filters, Hit, LexicalSearch, Vector, VectorSearch
from search.scoring.format_promotion import has_dedicated_skills
from search.scoring.score_candidates import (
    Candidate,
    ScoredCandidates,
    long_task_weight,
    score_candidates,
)
from search.scoring.weights import ScoringWeights
from search.text.query_understanding import Understanding, understand
from skills.record import RevisionKey
from skills.skill_policy import PolicyViolation
from tasks.query.policy_filter import PolicyFilter, WithheldHit, expand_filters
from tasks.query.published_library import LibrarySnapshot
from tasks.services import Services

EXPLAINED_CANDIDATES = 100
"""Candidates that are told why they rank; a bundle never reaches the others but over links."""

MAX_ENGINE_TERMS = 50
"""An engine is asked for so many terms of a task at most; exact scores use all of them. Each term
costs the engine five lookups, and with 50 a long task finds what it finds with all."""

_FORMAT_CANDIDATES = 20
"""Candidates for a file format of its own, which the task may mention just once."""

StageTimer = Callable[[str], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class RankedSkill:
    """A candidate with its score, each part of the score, and why it ranks.

    slot: the file format that the task names and for which it was moved up, "" without one.
    """

    key: RevisionKey
    score: float
    parts: dict[str, float]
    why: tuple[str, ...]
    named_format: str = ""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Candidates best first.

    vector: of the task, None where dense scores say nothing. long: 0 for a short query, 1 for a
    long task. evidence: the best BM25F over the root of the task's mass; nearness: the best
    cosine, None where dense scores say nothing. skills: size of the library. degraded: stages
    that fell short.
    """

    understanding: Understanding
    vector: Vector | None
    hits: tuple[RankedSkill, ...] = ()
    long_task_weight: float = 0.0
    evidence: float = 0.0
    best_cosine: float | None = None
    library_size: int = 0
    degraded: tuple[str, ...] = field(default=())
    withheld: tuple[WithheldHit, ...] = ()


def rank_candidates(
    services: Services,
    task: str,
    filters: Filters,
    without: frozenset[str],
    timed: StageTimer,
    policy_filter: PolicyFilter | None = None,
) -> Ranking:
    """Candidates from the engine, scored exactly; those that `screen` refuses apart.

    Raises UsageError for an empty task.
    """
    with timed("understand"):
        snapshot = services.library.refresh()
        understanding = understand(task)
    vector = None
    if "dense" not in without and understanding.language in services.encoder.get().languages:
        with timed("encode"):
            vector = services.encoder.get().encode([understanding.text])[0]
    with timed("retrieve"):
        lost = [snapshot.stale_reason] if snapshot.stale_reason else []
        try:
            keys = search_candidates(
                services.index,
                snapshot,
                understanding,
                vector,
                expand_filters(policy_filter, filters, snapshot.pointers),
                services.settings.retrieval,
            )
        except TransientError as error:
            if services.circuit_breakers is None or filters != Filters(source=filters.source):
                raise
            lost.append(f"ranked by the words in memory: {error}")
            keys, vector = _all_published_keys(snapshot, filters), None
    refused = policy_filter(keys) if policy_filter else {}
    with timed("score"):
        allowed = [key for key in keys if key.skill_id not in refused] if refused else keys
        scored = _score(services, snapshot, understanding, allowed, vector, without)
        ranking = build_ranking(understanding, vector, scored, len(snapshot.pointers))
        withheld: tuple[WithheldHit, ...] = ()
        if refused:
            rest = [key for key in keys if key.skill_id in refused]
            kept_back = _score(services, snapshot, understanding, rest, vector, without)
            withheld = _withheld(kept_back, ranking, refused)
        return replace(ranking, degraded=tuple(lost), withheld=withheld)


def _withheld(
    scored: ScoredCandidates, ranking: Ranking, refused: Mapping[str, PolicyViolation]
) -> tuple[WithheldHit, ...]:
    """Candidates that are kept back, with where they would stand. Scores do not depend on which
    candidates are scored together."""
    places = sorted(-hit.score for hit in ranking.hits)
    best = max([*scored.scores.tolist()[:1], *(-score for score in places[:1])], default=0.0)
    return tuple(
        WithheldHit(
            key.skill_id,
            refused[key.skill_id],
            rank=bisect_left(places, -score),
            relative_score=score / best if best > 0 else 0.0,
            evidence=float(scored.evidence[number]),
            best_cosine=float(scored.best_cosine[number]),
        )
        for number, (key, score) in enumerate(zip(scored.keys, scored.scores.tolist(), strict=True))
        if score > 0
    )


def _all_published_keys(snapshot: LibrarySnapshot, filters: Filters) -> list[RevisionKey]:
    """Every published revision, for when no engine narrows them down."""
    return [
        RevisionKey(skill_id, seq)
        for skill_id, seq in snapshot.pointers.items()
        if not filters.source or skill_id.partition(":")[0] in filters.source
    ]


class CandidateSearch(Protocol):
    """What retrieving asks of an index."""

    def search_many(self, searches: Sequence[LexicalSearch | VectorSearch]) -> list[list[Hit]]:
        """The hits of each search."""
        ...


def search_candidates(
    index: CandidateSearch,
    snapshot: LibrarySnapshot,
    understanding: Understanding,
    vector: Vector | None,
    filters: Filters | Sequence[Filters],
    settings: RetrievalSettings,
) -> list[RevisionKey]:
    """Published revisions that stand for a hit of the engine, lexical or near.

    Of several filters each is asked for on its own, in one round trip.
    """
    # The more rivals, the lower the engine's own score may rank what is needed.
    long = long_task_weight(understanding, ScoringWeights())
    limit = max(settings.candidates, int(settings.share * len(snapshot.pointers)))
    weights = _select_engine_terms(understanding, snapshot)
    searches: list[LexicalSearch | VectorSearch] = []
    for engine_filters in [filters] if isinstance(filters, Filters) else filters:
        if weights:
            searches.append(LexicalSearch(weights, limit, engine_filters))
        searches += [
            LexicalSearch(dict.fromkeys(words, 1.0), _FORMAT_CANDIDATES, engine_filters)
            for words in understanding.formats.values()
            if has_dedicated_skills(words, snapshot.statistics)
        ]
        if vector is not None and settings.neighbours:
            # Words say enough of a long task.
            near = max(round(settings.neighbours * (1.0 - 0.75 * long)), 1)
            searches += [VectorSearch(vector, which, near, engine_filters) for which in (0, 1)]
    # A hit on a superseded revision that is still in the index stands for its skill.
    ids = dict.fromkeys(hit.key.skill_id for hits in index.search_many(searches) for hit in hits)
    return [
        RevisionKey(skill_id, snapshot.pointers[skill_id])
        for skill_id in ids
        if skill_id in snapshot.pointers
    ]


def _select_engine_terms(
    understanding: Understanding, snapshot: LibrarySnapshot
) -> dict[str, float]:
    """The terms that the library knows with their weights, the heaviest by weight x idf."""
    weights, statistics = understanding.weights, snapshot.statistics
    known = statistics.document_frequencies(understanding.ids) > 0
    mass = np.where(known, weights * statistics.idf(understanding.ids), 0.0)
    heaviest = np.argsort(-mass, kind="stable")
    chosen = [place for place in heaviest[:MAX_ENGINE_TERMS].tolist() if known[place]]
    return {understanding.terms[place]: float(weights[place]) for place in chosen}


def _score(
    services: Services,
    snapshot: LibrarySnapshot,
    understanding: Understanding,
    keys: list[RevisionKey],
    vector: Vector | None,
    without: frozenset[str],
) -> ScoredCandidates:
    cosines: dict[RevisionKey, tuple[float, float]] = {}
    if vector is not None:
        for key, pair in services.index.get_skill_vectors(keys).items():
            if pair.any():
                described, head = (pair @ vector).tolist()
                cosines[key] = (described, head)
    records = snapshot.statistics.get_records(keys)
    found = [Candidate(key, record, cosines.get(key)) for key, record in records.items()]
    return score_candidates(understanding, found, snapshot.statistics, without=without)


def build_ranking(
    understanding: Understanding, vector: Vector | None, scored: ScoredCandidates, skills: int
) -> Ranking:
    """Scored candidates with the reasons why they rank; those without any evidence dropped."""
    hits = []
    for place, key in enumerate(scored.keys):
        parts = {name: float(values[place]) for name, values in scored.components.items()}
        hits.append(
            RankedSkill(
                key,
                float(scored.scores[place]),
                parts,
                _why(scored, key, parts) if place < EXPLAINED_CANDIDATES else (),
                scored.slots.get(key, ""),
            )
        )
    # Without a shared term or a near vector there is no evidence, whatever the rank.
    hits = [hit for hit in hits if hit.score > 0]
    return Ranking(
        understanding,
        vector,
        tuple(hits),
        long_task_weight=long_task_weight(understanding, ScoringWeights()),
        evidence=float(scored.evidence.max(initial=0.0)),
        best_cosine=float(scored.best_cosine.max()) if scored.best_cosine.any() else None,
        library_size=skills,
    )


_WHY = {
    "bm25f": "its text matches the task",
    "names": "the task says what its name says",
    "bigrams": "phrases in common",
    "hub": "particular, where others match anything",
    "dense": "close in meaning",
}


def _why(scored: ScoredCandidates, key: RevisionKey, parts: dict[str, float]) -> tuple[str, ...]:
    """The parts that carry the score, strongest first."""
    if key in scored.slots:
        return (f"the task names the format {scored.slots[key]}",)
    strong = sorted(parts.items(), key=lambda part: -part[1])
    total = sum(value for value in parts.values() if value > 0)
    return tuple(_WHY[name] for name, value in strong if value > 0.15 * total)
