"""What the ranking stages pass on: the task, its candidates, and the ranking of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from config.settings import ChoiceSettings
from search.protocol import Vector
from search.scoring.evidence_floor import has_evidence
from search.scoring.score_candidates import ScoredCandidates, long_task_weight
from search.scoring.weights import ScoringWeights
from search.text.query_understanding import Understanding
from skills.record import RevisionKey
from skills.skill_policy import PolicyViolation
from tasks.query.process_state.published_library import LibrarySnapshot

_EXPLAINED_CANDIDATES = 100
"""Candidates that get the reasons why they rank. A bundle reaches others only over links."""

_MIN_REASON_SHARE = 0.15
"""Share of the score from which on a part of it is named as a reason."""

_REASONS = {
    "bm25f": "its text matches the task",
    "names": "the task says what its name says",
    "bigrams": "phrases in common",
    "hub": "particular, where others match anything",
    "dense": "close in meaning",
}


@dataclass(frozen=True, slots=True)
class TaskQuery:
    """A task as the stages search for it.

    snapshot: the published library that is searched. vector: None where dense scores say nothing.
    """

    snapshot: LibrarySnapshot
    understanding: Understanding
    vector: Vector | None


@dataclass(frozen=True, slots=True)
class Candidates:
    """Published revisions that may match, in no order; the query is without vector where none
    could be searched by it."""

    query: TaskQuery
    keys: list[RevisionKey]


@dataclass(frozen=True, slots=True)
class RankedSkill:
    """A candidate with its score, each part of the score, and why it ranks.

    named_format: the file format that the task names and for which it was moved up, "" without.
    """

    key: RevisionKey
    score: float
    parts: dict[str, float]
    why: tuple[str, ...]
    named_format: str = ""


@dataclass(frozen=True, slots=True)
class WithheldHit:
    """A candidate that the policy keeps back.

    rank: how many that may be sent score higher. relative_score: its score over the best of all.
    evidence, best_cosine: as in a ranking, of this candidate alone.
    """

    skill_id: str
    violation: PolicyViolation
    rank: int = 0
    relative_score: float = 0.0
    evidence: float = 0.0
    best_cosine: float = 0.0


@dataclass(frozen=True, slots=True)
class Selection:
    """What the language model selected of the candidates, by skill_id.

    needed: best match first. useful: help besides, best first, with their relevancy as a share of
    the best one's. order: the needed ones as the work uses them. rejected: skill_id -> reason.
    complete: the needed ones cover the task.
    """

    needed: tuple[str, ...]
    useful: Mapping[str, float]
    order: tuple[str, ...]
    rejected: Mapping[str, str]
    complete: bool


@dataclass(frozen=True, slots=True)
class Ranking:
    """Candidates best first.

    vector: of the task, None where dense scores say nothing. long_task_weight: 0 for a short
    query, 1 for a long task. evidence: the best BM25F over the root of the task's mass.
    best_cosine: None where dense scores say nothing. library_size: in skills. conflicts: pairs of
    skill_ids that must not go together for this task. selection: by the language model, None
    without one.
    """

    understanding: Understanding
    vector: Vector | None
    hits: tuple[RankedSkill, ...] = ()
    long_task_weight: float = 0.0
    evidence: float = 0.0
    best_cosine: float | None = None
    library_size: int = 0
    withheld: tuple[WithheldHit, ...] = ()
    conflicts: tuple[tuple[str, str], ...] = ()
    selection: Selection | None = None

    def is_evident(self, settings: ChoiceSettings) -> bool:
        """Whether the library has enough evidence for the task to answer with a skill."""
        return has_evidence(
            self.evidence,
            self.best_cosine,
            self.library_size,
            self.long_task_weight,
            (settings.floor, settings.floor_long),
            settings.floor_cosine,
        )


def build_ranking(query: TaskQuery, scored: ScoredCandidates) -> Ranking:
    """The ranking of scored candidates, with reasons; candidates without any evidence dropped."""
    hits = []
    for place, key in enumerate(scored.keys):
        parts = {name: float(values[place]) for name, values in scored.components.items()}
        hits.append(
            RankedSkill(
                key,
                float(scored.scores[place]),
                parts,
                _reasons(scored, key, parts) if place < _EXPLAINED_CANDIDATES else (),
                scored.slots.get(key, ""),
            )
        )
    # Without a shared term or a near vector there is no evidence, whatever the rank.
    hits = [hit for hit in hits if hit.score > 0]
    return Ranking(
        query.understanding,
        query.vector,
        tuple(hits),
        long_task_weight=long_task_weight(query.understanding, ScoringWeights()),
        evidence=float(scored.evidence.max(initial=0.0)),
        best_cosine=float(scored.best_cosine.max()) if scored.best_cosine.any() else None,
        library_size=len(query.snapshot.pointers),
    )


def _reasons(
    scored: ScoredCandidates, key: RevisionKey, parts: Mapping[str, float]
) -> tuple[str, ...]:
    """Reasons for the parts that carry the score, the heaviest first."""
    if key in scored.slots:
        return (f"the task names the format {scored.slots[key]}",)
    heaviest = sorted(parts.items(), key=lambda part: -part[1])
    total = sum(value for value in parts.values() if value > 0)
    return tuple(_REASONS[name] for name, value in heaviest if value > _MIN_REASON_SHARE * total)
