"""Data that the ranking stages pass on: task, candidates and ranking."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

import numpy as np

from search.protocol import Vector
from search.scoring.library_statistics import LibraryStatistics
from search.scoring.memory_evidence import SkillEvidence
from search.scoring.probability import (
    RIVALS,
    RankedEvidence,
    load_probability_model,
    match_descriptions,
    match_terms,
)
from search.scoring.record_source import RecordSource
from search.scoring.score_candidates import ScoredCandidates, long_task_weight
from search.scoring.weights import ScoringWeights
from search.text.query_understanding import Understanding
from skills.record import RevisionKey
from skills.skill_policy import PolicyViolation
from tasks.query.process_state.published_library import LibrarySnapshot

_EXPLAINED_CANDIDATES = 100
"""Number of candidates that get reasons for their rank. A bundle contains other candidates only
over links."""

_MIN_REASON_SHARE = 0.15
"""Minimum share of the score at which a part of it is named as a reason."""

_REASONS = {
    "bm25f": "its text matches the task",
    "description": "its description matches the task",
    "examples": "an example in it is like the task",
    "names": "its name is in the task",
    "bigrams": "phrases in common",
    "hub": "specific: unrelated texts score low",
    "dense": "close in meaning",
}


@dataclass(frozen=True, slots=True)
class TaskQuery:
    """A task as the stages search for it.

    snapshot: the published library that is searched. vector: None if dense scores mean nothing.
    remembered: evidence of near past tasks about skills, by skill_id.
    """

    snapshot: LibrarySnapshot
    understanding: Understanding
    vector: Vector | None
    remembered: Mapping[str, SkillEvidence] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Candidates:
    """Published revisions that may match, unordered. The query is without vector if no search by it
    was possible."""

    query: TaskQuery
    keys: list[RevisionKey]


@dataclass(frozen=True, slots=True)
class RankedSkill:
    """A candidate with its score, the parts of the score, and reasons for its rank.

    named_format: the file format, named in the task, for which it was moved up, "" without.
    evidence: BM25F over the root of the task's mass. nearness: the better cosine with the task in
    standard deviations above the mean of unrelated texts, None if unknown. probability: that it is
    right for the task, None before it was estimated.
    """

    key: RevisionKey
    score: float
    parts: dict[str, float]
    why: tuple[str, ...]
    named_format: str = ""
    evidence: float = 0.0
    nearness: float | None = None
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class WithheldHit:
    """A candidate that the policy withholds.

    rank: number of skills with a higher score that may be sent. relative_score: its score over the
    best of all. hit: the candidate itself, None for a skill that was added over links.
    """

    skill_id: str
    violation: PolicyViolation
    rank: int = 0
    relative_score: float = 0.0
    hit: RankedSkill | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """Selection of candidates by the language model, by skill_id.

    needed: best match first. useful: further helpful skills, best first, with their relevancy as a
    share of the best one's. order: the needed skills in the order of the work. rejected: skill_id
    -> reason. complete: whether the needed skills cover the task.
    """

    needed: tuple[str, ...]
    useful: Mapping[str, float]
    order: tuple[str, ...]
    rejected: Mapping[str, str]
    complete: bool


class DiffusionStart(NamedTuple):
    """Start of a diffusion. seeds: shares of 1 by skill_id. epoch: epoch of the catalog before
    links were read."""

    seeds: Mapping[str, float]
    epoch: int


@dataclass(frozen=True, slots=True)
class Ranking:
    """Candidates, best first.

    vector: of the task, None if dense scores mean nothing. long_task_weight: 0 for a short query, 1
    for a long task. mass: idf mass of the task. library_size: in skills. probability: that one of
    the first ten is right, None before it was estimated. conflicts: pairs of skill_ids that must
    not go together for this task. selection: by the language model, None without one. cosines: of
    the task with both vectors of each candidate that has them. refused: the best candidates that
    are excluded because they did not serve in the session. remembered: evidence of near past tasks
    about skills, by skill_id. least_score: the lowest score of any candidate with evidence,
    including those behind the hits. diffusion: its start, None if it moved nothing.
    """

    understanding: Understanding
    vector: Vector | None
    hits: tuple[RankedSkill, ...] = ()
    long_task_weight: float = 0.0
    mass: float = 0.0
    library_size: int = 0
    probability: float | None = None
    withheld: tuple[WithheldHit, ...] = ()
    conflicts: tuple[tuple[str, str], ...] = ()
    selection: Selection | None = None
    cosines: Mapping[RevisionKey, tuple[float, float]] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    remembered: Mapping[str, SkillEvidence] = field(default_factory=dict)
    least_score: float = 0.0
    diffusion: DiffusionStart | None = None


def build_ranking(query: TaskQuery, scored: ScoredCandidates, limit: int | None = None) -> Ranking:
    """Return the ranking of the best `limit` of scored candidates, None for all, with reasons and
    without candidates that have no evidence."""
    understanding, statistics = query.understanding, query.snapshot.statistics
    idf = statistics.idf(understanding.ids).astype(np.float64)
    return Ranking(
        understanding,
        query.vector,
        tuple(islice(list_hits(scored), limit)),
        long_task_weight=long_task_weight(understanding, ScoringWeights()),
        mass=float(understanding.weights.astype(np.float64) @ idf),
        library_size=len(query.snapshot.pointers),
        remembered=query.remembered,
        least_score=min(scored.scores[scored.scores > 0].tolist(), default=0.0),
    )


def list_hits(scored: ScoredCandidates) -> Iterator[RankedSkill]:
    """Yield scored candidates with some evidence, best first, the first ones with reasons."""
    names = tuple(scored.components)
    rows = zip(
        scored.keys,
        scored.scores.tolist(),
        scored.evidence.tolist(),
        scored.nearness.tolist(),
        np.stack(list(scored.components.values()), axis=1).tolist() if names else (),
        strict=True,
    )
    for place, (key, score, evidence, nearness, values) in enumerate(rows):
        # Without a shared term or a near vector there is no evidence, regardless of the rank.
        if not score > 0:
            continue
        parts = dict(zip(names, values, strict=True))
        yield RankedSkill(
            key,
            score,
            parts,
            _reasons(scored, key, parts) if place < _EXPLAINED_CANDIDATES else (),
            scored.slots.get(key, ""),
            evidence,
            None if math.isnan(nearness) else nearness,
        )


def estimate_probabilities(
    ranking: Ranking, statistics: LibraryStatistics, source: RecordSource
) -> Ranking:
    """Return the ranking with the probabilities of its first candidates and of the library.

    Candidates behind the first 20 get none. statistics, source: of the library that was searched.
    """
    head = ranking.hits[:RIVALS]
    found = load_probability_model().estimate(collect_evidence(ranking, statistics, source))
    known = [
        replace(hit, probability=_remember(ranking, hit, probability))
        for hit, probability in zip(head, found.skills.tolist(), strict=True)
    ]
    library = found.library
    if ranking.remembered:
        library = max([library, *(hit.probability or 0.0 for hit in known)])
    return replace(ranking, hits=(*known, *ranking.hits[RIVALS:]), probability=library)


def _remember(ranking: Ranking, hit: RankedSkill, probability: float) -> float:
    """Return a probability combined with past tasks as independent evidence: log-odds add up."""
    evidence = ranking.remembered.get(hit.key.skill_id)
    if evidence is None or not 0.0 < probability < 1.0:
        return probability
    odds = probability / (1.0 - probability) * math.exp(evidence.odds)
    return odds / (1.0 + odds)


def collect_evidence(
    ranking: Ranking, statistics: LibraryStatistics, source: RecordSource
) -> RankedEvidence:
    """Return the data from which the probabilities of the first candidates are estimated."""
    head = ranking.hits[:RIVALS]
    records = source.pack([hit.key for hit in head])
    shares = match_descriptions(ranking.understanding, records, statistics)
    masses = match_terms(ranking.understanding, records)
    read = dict(zip(records.keys, zip(shares.tolist(), masses.tolist(), strict=True), strict=True))
    matches = np.array([read.get(hit.key, (0.0, 0.0)) for hit in head]).reshape(-1, 2)
    return RankedEvidence(
        scores=np.array([hit.score for hit in head]),
        evidence=np.array([hit.evidence for hit in head]),
        nearness=np.array([hit.nearness for hit in head], dtype=np.float64),
        descriptions=matches[:, 0],
        matched=matches[:, 1],
        mass=ranking.mass,
        skills=ranking.library_size,
        long_task_weight=ranking.long_task_weight,
    )


def _reasons(
    scored: ScoredCandidates, key: RevisionKey, parts: Mapping[str, float]
) -> tuple[str, ...]:
    """Return reasons for the main parts of the score, the heaviest first."""
    if key in scored.slots:
        return (f"the task names the format {scored.slots[key]}",)
    heaviest = sorted(parts.items(), key=lambda part: -part[1])
    total = sum(value for value in parts.values() if value > 0)
    # The memory's own reason, with its counts, is added later.
    return tuple(
        _REASONS[name]
        for name, value in heaviest
        if value > _MIN_REASON_SHARE * total and name in _REASONS
    )
