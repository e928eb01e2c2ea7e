"""Exact scores of candidates, independent of the engine that found them.

Computed with numpy from forward records and library statistics: BM25F, names, bigrams, hubness
and cosines, each divided by a fixed spread so that their proportions hold in libraries of any
size. Weights are interpolated between short queries and long tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from search.completed_terms import stack_fields
from search.protocol import ForwardRecord, TermIds
from search.scoring.format_promotion import promote_format_owners
from search.scoring.library_statistics import LibraryStatistics, name_terms
from search.scoring.weights import ScoringWeights
from search.text.query_understanding import Understanding
from search.text.tokens import is_cjk, word_count
from skills.record import RevisionKey

_Ints = npt.NDArray[np.intp]
_BUCKETS = np.uint64(1 << 16)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A revision to score.

    cosines: of the task with its two skill vectors; None without vectors, or if the encoder does
    not know the language of the task or the skill.
    """

    key: RevisionKey
    forward: ForwardRecord
    cosines: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class ScoredCandidates:
    """Scored candidates, best first; all arrays are (n,), in the order of `keys`.

    scores: float64, descending except where a format slot moved a candidate up. components: the
    contribution of each part to the score. evidence: BM25F over the root of the task's idf mass,
    comparable between tasks; 0 if no term matches. best_cosine: the better of the two cosines, 0
    without. slots: the format for which a candidate was moved up, by key.
    """

    keys: tuple[RevisionKey, ...]
    scores: npt.NDArray[np.float64]
    components: dict[str, npt.NDArray[np.float64]]
    evidence: npt.NDArray[np.float64]
    best_cosine: npt.NDArray[np.float64]
    slots: dict[RevisionKey, str] = field(default_factory=dict)


def long_task_weight(understanding: Understanding, weights: ScoringWeights) -> float:
    """Return t of the task for interpolation: 0 for a short query, 1 for a long task."""
    beyond = understanding.words - weights.short_words
    return min(max(beyond / weights.blend_words, 0.0), 1.0)


def score_candidates(
    understanding: Understanding,
    candidates: Sequence[Candidate],
    statistics: LibraryStatistics,
    weights: ScoringWeights | None = None,
    without: frozenset[str] = frozenset(),
) -> ScoredCandidates:
    """Score and sort candidates; ties are broken by skill_id, then by the newer revision.

    without: parts to leave out, of `names`, `bigrams`, `hub`, `dense` and `artifacts`.
    """
    weights = weights or ScoringWeights()
    if not candidates:
        empty = np.empty(0, dtype=np.float64)
        return ScoredCandidates((), empty, {}, empty, empty)
    t = long_task_weight(understanding, weights)
    idf = statistics.idf(understanding.ids).astype(np.float64)
    records = [candidate.forward for candidate in candidates]
    evidence = _bm25f(understanding, records, idf, statistics, weights, t)
    lexical = evidence / weights.bm25f_spread
    components = {"bm25f": lexical}
    names = [name_terms(record) for record in records]
    if "names" not in without:
        components["names"] = _name_scores(understanding, names, idf, statistics, weights, t)
    if "bigrams" not in without:
        pairs = _bigram_scores(understanding, records, idf, weights)
        components["bigrams"] = weights.bigrams * pairs / weights.bigrams_spread
    if "hub" not in without:
        hubs = statistics.get_hubness([candidate.key for candidate in candidates], records)
        share = weights.hub * _english_share(understanding)
        components["hub"] = share * (weights.hub_mean - hubs) / weights.hub_spread
    if "dense" not in without:
        components["dense"] = _dense_scores(candidates, lexical, weights, t)
    total = np.sum(list(components.values()), axis=0)
    order = sorted(
        range(len(candidates)),
        key=lambda i: (-total[i], candidates[i].key.skill_id, -candidates[i].key.seq),
    )
    slots: dict[int, str] = {}
    if "artifacts" not in without:
        formats = understanding.formats
        order, slots = promote_format_owners(
            formats, names, total, statistics, order, weights.slots
        )
    return ScoredCandidates(
        keys=tuple(candidates[i].key for i in order),
        scores=total[order],
        components={name: part[order] for name, part in components.items()},
        evidence=evidence[order],
        best_cosine=np.array([max(candidates[i].cosines or (0.0, 0.0)) for i in order]),
        slots={candidates[i].key: kind for i, kind in slots.items()},
    )


def _bm25f(
    understanding: Understanding,
    records: Sequence[ForwardRecord],
    idf: npt.NDArray[np.float64],
    statistics: LibraryStatistics,
    weights: ScoringWeights,
    t: float,
) -> npt.NDArray[np.float64]:
    """Return BM25F, interpolated between short and long, over the root of the task's idf mass."""
    mass = understanding.weights.astype(np.float64) * idf
    owners, places, rows = _matches(understanding.ids, [record.terms for record in records])
    every_count, lengths = stack_fields(records)
    counts = every_count[rows].astype(np.float64)
    width = lengths.shape[1]
    norms = np.array(weights.length_norms[:width])
    damped = 1.0 - norms + norms * lengths / statistics.mean_lengths[:width].astype(np.float64)
    damped = np.maximum(damped, 1e-6)  # an empty field has no terms, so its floor has no effect
    root = float(np.sqrt(mass.sum())) or 1.0

    def over_fields(field_weights: Sequence[float], k: float) -> npt.NDArray[np.float64]:
        tf = (counts * (np.array(field_weights[:width]) / damped)[owners]).sum(axis=1)
        gains = mass[places] * (k + 1.0) * tf / (tf + k)
        return np.bincount(owners, weights=gains, minlength=len(records)) / root

    blended = np.zeros(len(records))
    if t > 0.0:
        blended += t * over_fields(weights.field_weights, weights.k_long)
    if t < 1.0:
        body = (weights.body_short, weights.body_short)
        fields = (*weights.field_weights[:3], *body, *weights.field_weights[5:])
        blended += (1.0 - t) * over_fields(fields, weights.k_short)
    return blended


def _matches(wanted: TermIds, lists: Sequence[TermIds]) -> tuple[_Ints, _Ints, _Ints]:
    """Find wanted hashes in lists of hashes.

    Returns three arrays with, for every match, the index of the list, the index in `wanted`, and
    the row in the concatenation of all lists.
    """
    together = np.concatenate(lists)
    # Of a hundred thousand terms a few hundred match: a table of the low bits excludes most.
    likely = np.zeros(_BUCKETS, dtype=np.bool_)
    likely[wanted & (_BUCKETS - 1)] = True
    rows = np.flatnonzero(likely[together & (_BUCKETS - 1)])
    order = np.argsort(wanted)
    ranked = wanted[order]
    near = ranked.searchsorted(together[rows])
    near[near == len(ranked)] = 0
    found = ranked[near] == together[rows] if len(ranked) else np.zeros(0, dtype=np.bool_)
    ends = np.cumsum([len(entry) for entry in lists])
    rows = rows[found]
    return ends.searchsorted(rows, side="right"), order[near[found]], rows


def _name_scores(
    understanding: Understanding,
    names: Sequence[TermIds],
    idf: npt.NDArray[np.float64],
    statistics: LibraryStatistics,
    weights: ScoringWeights,
    t: float,
) -> npt.NDArray[np.float64]:
    """Return the contribution of names that the task mentions.

    coverage: the share of the idf mass of the name's terms that the task has. It favours names of
    one common word, so that for short queries its product with the share of the query that the
    name has is added, squared: 1 if query and name are the same.
    """
    together = np.concatenate(names)
    if not len(together):
        return np.zeros(len(names))
    owners = np.repeat(np.arange(len(names)), [len(name) for name in names])
    own = statistics.idf(together).astype(np.float64)
    mentioned_idf = own * np.isin(together, understanding.ids)
    mass = np.bincount(owners, weights=own, minlength=len(names))
    mentioned = np.bincount(owners, weights=mentioned_idf, minlength=len(names))
    coverage = mentioned / np.maximum(mass, 1e-9)
    # A name's terms are distinct, so `mentioned` is also its part of the query's mass.
    sameness = coverage * mentioned / max(float(idf.sum()), 1e-9)
    return (
        weights.interpolate(weights.name_coverage, t) * coverage / weights.name_coverage_spread
        + (1.0 - t) * weights.exact_name * sameness**2
    )


def _bigram_scores(
    understanding: Understanding,
    records: Sequence[ForwardRecord],
    idf: npt.NDArray[np.float64],
    weights: ScoringWeights,
) -> npt.NDArray[np.float64]:
    """Return the common bigrams, saturated by field weight, over the root of the task's mass."""
    owners, places, rows = _matches(understanding.pairs, [record.bigrams for record in records])
    if not len(owners):
        return np.zeros(len(records))
    worth = idf[understanding.pair_positions].mean(axis=1)
    strength = np.concatenate([record.bigram_weights for record in records])[rows]
    gains = worth[places] * strength / (strength + weights.bigrams_half)
    root = float(np.sqrt(worth.sum())) or 1.0
    return np.bincount(owners, weights=gains, minlength=len(records)) / root


def _english_share(understanding: Understanding) -> float:
    """Return the share of the task's words that are not Chinese, Japanese or Korean.

    The background documents behind hubness are mostly English, so hubness applies to this share.
    """
    chinese = word_count([term for term in understanding.terms if is_cjk(term)])
    return 1.0 - chinese / max(understanding.words, 1e-9)


def _dense_scores(
    candidates: Sequence[Candidate],
    lexical: npt.NDArray[np.float64],
    weights: ScoringWeights,
    t: float,
) -> npt.NDArray[np.float64]:
    """Return the contribution of cosines, relative to those of unrelated texts.

    A candidate without cosines gets the value expected from its lexical score.
    """
    known = np.array([candidate.cosines is not None for candidate in candidates])
    scores = np.zeros(len(candidates))
    if not known.any():
        return scores
    cosines = np.array([candidate.cosines for candidate in candidates if candidate.cosines])
    parts = (weights.dense_description, weights.dense_head)
    shares = np.array([weights.interpolate(part, t) for part in parts])
    scores[known] = ((cosines - weights.dense_mean) / weights.dense_spread) @ shares
    if not known.all():
        scores[~known] = _regress(lexical[known], scores[known], lexical[~known])
    return scores


def _regress(
    lexical: npt.NDArray[np.float64],
    dense: npt.NDArray[np.float64],
    others: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """Return the least-squares line of `dense` over `lexical`, at `others`."""
    middle = dense.mean()
    deviation = lexical - lexical.mean()
    spread = float(deviation @ deviation)
    slope = float(deviation @ (dense - middle)) / spread if spread > 1e-9 else 0.0
    return np.asarray(middle + slope * (others - lexical.mean()), dtype=np.float64)
