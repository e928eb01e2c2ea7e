"""Exact scores of candidates, independent of the engine that found them.

Computed with numpy from forward records and library statistics: BM25F, the description's own
BM25, names, bigrams, hubness and cosines, each divided by a fixed spread so that their proportions
hold in libraries of any size. Weights are interpolated between short queries and long tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from search.packed_records import HashLists, PackedRecords
from search.scoring.cosine_scale import DEFAULT_SCALE, CosineScale
from search.scoring.field_matches import FieldMatches, find_matches
from search.scoring.format_promotion import promote_format_owners
from search.scoring.library_statistics import LibraryStatistics
from search.scoring.stated_uses import measure_exclusion, score_examples
from search.scoring.weights import ScoringWeights
from search.text.query_understanding import Understanding
from search.text.tokens import is_cjk, word_count
from skills.record import RevisionKey

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ScoredCandidates:
    """Scored candidates, best first; all arrays are (n,), in the order of `keys`.

    scores: float64, descending except where a format slot moved a candidate up. components: the
    contribution of each part to the score. evidence: BM25F over the root of the task's idf mass,
    comparable between tasks; 0 if no term matches. nearness: the better of the two cosines in
    standard deviations above the mean of unrelated texts, NaN without. slots: the format for which
    a candidate was moved up, by key.
    """

    keys: tuple[RevisionKey, ...]
    scores: _Floats
    components: dict[str, _Floats]
    evidence: _Floats
    nearness: _Floats
    slots: dict[RevisionKey, str] = field(default_factory=dict)


def long_task_weight(understanding: Understanding, weights: ScoringWeights) -> float:
    """Return t of the task for interpolation: 0 for a short query, 1 for a long task."""
    beyond = understanding.words - weights.short_words
    return min(max(beyond / weights.blend_words, 0.0), 1.0)


def score_candidates(
    understanding: Understanding,
    records: PackedRecords,
    statistics: LibraryStatistics,
    weights: ScoringWeights | None = None,
    without: frozenset[str] = frozenset(),
    scale: CosineScale = DEFAULT_SCALE,
    factors: Mapping[str, float] | None = None,
    effects: Mapping[str, float] | None = None,
    cosines: _Floats | None = None,
) -> ScoredCandidates:
    """Score and sort candidates; ties are broken by skill_id, then by the newer revision.

    records: of the candidates, with their hubness. scale: of the encoder's cosines. without: parts
    to leave out, of `names`, `bigrams`, `hub`, `dense` and `artifacts`. factors: of the parts,
    where they were learned. effects: of past tasks, by skill_id. cosines: of the task with both
    skill vectors of each candidate, (n, 2); NaN without vectors, or if the encoder does not know
    the language of the task or the skill.
    """
    weights = weights or ScoringWeights()
    if not len(records):
        empty = np.empty(0, dtype=np.float64)
        return ScoredCandidates((), empty, {}, empty, empty)
    t = long_task_weight(understanding, weights)
    idf = statistics.idf(understanding.ids).astype(np.float64)
    if cosines is None:
        cosines = np.full((len(records), 2), np.nan)
    matches = FieldMatches(understanding, records, idf, statistics, weights)
    evidence = matches.score_text(t)
    lexical = evidence / weights.bm25f_spread
    components = {"bm25f": lexical}
    if t < 1.0:
        mass = understanding.weights.astype(np.float64) * idf
        parts = {
            "description": weights.description * matches.score_description(),
            "examples": weights.examples * score_examples(understanding, records, mass, weights),
            "exclusions": -weights.exclusion
            * measure_exclusion(understanding, records, mass, matches.measure_offered()),
        }
        components |= {name: (1.0 - t) * part for name, part in parts.items()}
    names = records.names
    if "names" not in without:
        components["names"] = _name_scores(understanding, names, idf, statistics, weights, t)
    if "bigrams" not in without:
        pairs = _bigram_scores(understanding, records, idf, weights)
        share = weights.interpolate(weights.bigrams, t)
        components["bigrams"] = share * pairs / weights.bigrams_spread
    if "hub" not in without:
        share = t * _hub_weight(len(statistics), weights) * _english_share(understanding)
        components["hub"] = share * (weights.hub_mean - records.hubness) / weights.hub_spread
    if "dense" not in without:
        components["dense"] = _dense_scores(cosines, lexical, weights, t, scale)
    if factors:
        components = {name: part * factors.get(name, 1.0) for name, part in components.items()}
    if effects:
        found = [effects.get(key.skill_id, 0.0) for key in records.keys]
        components["memory"] = np.array(found, dtype=np.float64)
    total = np.sum(list(components.values()), axis=0)
    keys, falling = records.keys, (-total).tolist()
    order = sorted(range(len(keys)), key=lambda i: (falling[i], keys[i].skill_id, -keys[i].seq))
    slots: dict[int, str] = {}
    if "artifacts" not in without:
        formats = understanding.formats
        order, slots = promote_format_owners(
            formats, names, total, statistics, order, weights.slots
        )
    return ScoredCandidates(
        keys=tuple(keys[i] for i in order),
        scores=total[order],
        components={name: part[order] for name, part in components.items()},
        evidence=evidence[order],
        nearness=_nearness(cosines[order], scale),
        slots={keys[i]: kind for i, kind in slots.items()},
    )


def _name_scores(
    understanding: Understanding,
    names: HashLists,
    idf: _Floats,
    statistics: LibraryStatistics,
    weights: ScoringWeights,
    t: float,
) -> _Floats:
    """Return the contribution of names that the task mentions.

    coverage: the share of the idf mass of the name's terms that the task has. It favours names of
    one common word, so that for short queries its product with the share of the query that the
    name has is added, squared: 1 if query and name are the same.
    """
    together, owners = names.values, names.owners
    if not len(together):
        return np.zeros(len(names))
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
    records: PackedRecords,
    idf: _Floats,
    weights: ScoringWeights,
) -> _Floats:
    """Return the common bigrams, saturated by field weight, over the root of the task's mass."""
    owners, places, rows = find_matches(understanding.pairs, records.bigrams)
    if not len(owners):
        return np.zeros(len(records))
    worth = idf[understanding.pair_positions].mean(axis=1)
    strength = records.bigram_weights[rows]
    gains = worth[places] * strength / (strength + weights.bigrams_half)
    root = float(np.sqrt(worth.sum())) or 1.0
    return np.bincount(owners, weights=gains, minlength=len(records)) / root


def _hub_weight(skills: int, weights: ScoringWeights) -> float:
    """Return the weight of hubness in a library of this size.

    A skill that matches anything costs a task its place only where many rivals match little: the
    weight shrinks with the number of skills.
    """
    return weights.hub * skills / (skills + weights.hub_rivals)


def _english_share(understanding: Understanding) -> float:
    """Return the share of the task's words that are not Chinese, Japanese or Korean.

    The background documents behind hubness are mostly English, so hubness applies to this share.
    """
    chinese = word_count([term for term in understanding.terms if is_cjk(term)])
    return 1.0 - chinese / max(understanding.words, 1e-9)


def _nearness(cosines: _Floats, scale: CosineScale) -> _Floats:
    return np.asarray((cosines.max(axis=1) - scale.mean) / scale.spread, dtype=np.float64)


def _dense_scores(
    cosines: _Floats,
    lexical: _Floats,
    weights: ScoringWeights,
    t: float,
    scale: CosineScale,
) -> _Floats:
    """Return the contribution of cosines, relative to those of unrelated texts.

    A candidate without cosines gets the value expected from its lexical score.
    """
    known = ~np.isnan(cosines[:, 0])
    scores = np.zeros(len(cosines))
    if not known.any():
        return scores
    parts = (weights.dense_description, weights.dense_head)
    shares = np.array([weights.interpolate(part, t) for part in parts])
    scores[known] = ((cosines[known] - scale.mean) / scale.spread) @ shares
    if not known.all():
        scores[~known] = predict_linearly(lexical[known], scores[known], lexical[~known])
    return scores


def predict_linearly(known: _Floats, values: _Floats, others: _Floats) -> _Floats:
    """Return the least-squares line of `values` over `known`, both (n,), at `others`, (m,)."""
    middle = values.mean()
    deviation = known - known.mean()
    spread = float(deviation @ deviation)
    slope = float(deviation @ (values - middle)) / spread if spread > 1e-9 else 0.0
    return np.asarray(middle + slope * (others - known.mean()), dtype=np.float64)
