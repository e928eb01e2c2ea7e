"""Exact scores of candidates, the same over every engine.

All of it is numpy over forward records and library statistics: BM25F, name coverage, adjacent
pairs and cosines, each divided by a fixed spread so that they add up alike in libraries of any
size. Long tasks and short queries are weighed differently, with a straight blend in between.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from search.protocol import FIELDS, ForwardRecord, TermIds, Vector
from search.tokens import term_ids
from search.understanding import Understanding
from skills.record import RevisionKey

_NAME = FIELDS.index("name")
_K = TypeVar("_K", bound=Hashable)
_Ints = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class ScoringWeights:
    """Constants of the score; each spread is the typical deviation of that part over a library.

    field_weights, length_norms, k: BM25F. body_long, body_short: weight of prose and code for
    long tasks and short queries. short_terms, blend_terms: the blend t goes from 0 to 1 between
    `short_terms` and `short_terms + blend_terms` distinct terms.
    """

    field_weights: tuple[float, ...] = (3.0, 2.0, 1.0, 0.2, 0.2)
    length_norms: tuple[float, ...] = (0.3, 0.75, 1.0, 1.0, 1.0)
    k: float = 3.0
    body_short: float = 1.0
    short_terms: float = 20.0
    blend_terms: float = 60.0
    bm25f_spread: float = 0.59
    names: float = 0.2
    names_spread: float = 0.08
    bigrams: float = 0.05
    bigrams_spread: float = 0.05
    bigrams_half: float = 3.0
    dense_described: tuple[float, float] = (0.5, 0.1)
    dense_head: tuple[float, float] = (0.5, 0.0)
    dense_mean: float = 0.055
    dense_spread: float = 0.075
    slots: int = 10
    slot_idf: float = 1.5


class Statistics(Protocol):
    """What scoring asks of the library."""

    @property
    def mean_lengths(self) -> Vector:
        """Mean length of each field."""
        ...

    def idf(self, terms: TermIds) -> Vector:
        """Inverse document frequency of each term."""
        ...


@dataclass(frozen=True, slots=True)
class Candidate:
    """A revision to be scored. cosines: of the task with its two skill vectors; None when they
    say nothing (no vectors, or a language that the encoder does not know)."""

    key: RevisionKey
    forward: ForwardRecord
    cosines: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Scored:
    """Candidates in order of their score, best first.

    scores: float64 (n,), descending except where a format slot moved a candidate up. components:
    each part's contribution to the score, (n,), in the same order. evidence: BM25F of the task
    over the root of its mass, (n,): comparable between tasks, 0 where no term matches. nearness:
    the better of the two cosines, (n,), 0 where they say nothing. slots:
    the format for which a candidate was moved up, by key.
    """

    keys: tuple[RevisionKey, ...]
    scores: npt.NDArray[np.float64]
    components: dict[str, npt.NDArray[np.float64]]
    evidence: npt.NDArray[np.float64]
    nearness: npt.NDArray[np.float64]
    slots: dict[RevisionKey, str] = field(default_factory=dict)


def blend(understanding: Understanding, weights: ScoringWeights) -> float:
    """t of the task: 0 for a short query, 1 for a long task."""
    distinct = len(understanding.terms)
    return min(max((distinct - weights.short_terms) / weights.blend_terms, 0.0), 1.0)


def score(
    understanding: Understanding,
    candidates: Sequence[Candidate],
    statistics: Statistics,
    weights: ScoringWeights | None = None,
    without: frozenset[str] = frozenset(),
) -> Scored:
    """Score and order candidates; ties are broken by skill_id, then by the newer revision.

    `without` leaves parts out: `names`, `bigrams`, `dense`, `artifacts`.
    """
    weights = weights or ScoringWeights()
    if not candidates:
        empty = np.empty(0, dtype=np.float64)
        return Scored((), empty, {}, empty, empty)
    t = blend(understanding, weights)
    idf = statistics.idf(understanding.ids).astype(np.float64)
    records = [candidate.forward for candidate in candidates]
    lexical, evidence = _bm25f(understanding, records, idf, statistics, weights, t)
    components = {"bm25f": lexical}
    names = [record.terms[record.counts[:, _NAME].nonzero()[0]] for record in records]
    if "names" not in without:
        coverage = _name_coverage(understanding, names, statistics)
        components["names"] = weights.names * t * coverage / weights.names_spread
    if "bigrams" not in without:
        pairs = _bigrams(understanding, records, idf, weights)
        components["bigrams"] = weights.bigrams * pairs / weights.bigrams_spread
    if "dense" not in without:
        components["dense"] = _dense(candidates, weights, t)
    total = np.sum(list(components.values()), axis=0)
    order = sorted(
        range(len(candidates)),
        key=lambda i: (-total[i], candidates[i].key.skill_id, -candidates[i].key.seq),
    )
    slots: dict[int, str] = {}
    if "artifacts" not in without:
        order, slots = _fill_slots(understanding, names, statistics, weights, order)
    return Scored(
        keys=tuple(candidates[i].key for i in order),
        scores=total[order],
        components={name: part[order] for name, part in components.items()},
        evidence=evidence[order],
        nearness=np.array([max(candidates[i].cosines or (0.0, 0.0)) for i in order]),
        slots={candidates[i].key: kind for i, kind in slots.items()},
    )


def _bm25f(
    understanding: Understanding,
    records: Sequence[ForwardRecord],
    idf: npt.NDArray[np.float64],
    statistics: Statistics,
    weights: ScoringWeights,
    t: float,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """(blended BM25F over its spread, BM25F of long tasks), both over the root of the mass."""
    mass = understanding.weights.astype(np.float64) * idf
    owners, places, rows = _matches(understanding.ids, [record.terms for record in records])
    counts = np.concatenate(
        [record.counts[found] for record, found in zip(records, rows, strict=True)]
    ).astype(np.float64)
    lengths = np.stack([record.lengths for record in records]).astype(np.float64)
    norms = np.array(weights.length_norms)
    damped = 1.0 - norms + norms * lengths / statistics.mean_lengths.astype(np.float64)
    damped = np.maximum(damped, 1e-6)  # an empty field has no term that this could raise
    root = float(np.sqrt(mass.sum())) or 1.0

    def over_fields(field_weights: Sequence[float]) -> npt.NDArray[np.float64]:
        tf = (counts * (np.array(field_weights) / damped)[owners]).sum(axis=1)
        gains = mass[places] * (weights.k + 1.0) * tf / (tf + weights.k)
        return np.bincount(owners, weights=gains, minlength=len(records)) / root

    long = over_fields(weights.field_weights)
    blended = t * long
    if t < 1.0:
        body = (weights.body_short, weights.body_short)
        blended = blended + (1.0 - t) * over_fields((*weights.field_weights[:3], *body))
    return blended / weights.bm25f_spread, long


def _matches(wanted: TermIds, lists: Sequence[TermIds]) -> tuple[_Ints, _Ints, list[_Ints]]:
    """Where any of the sorted lists has a wanted hash.

    Returns, for every match, the list and the place in `wanted`; and for each list its own rows.
    """
    order = np.argsort(wanted)
    ranked = wanted[order]
    rows: list[_Ints] = []
    places: list[_Ints] = []
    for entry in lists:
        near = entry.searchsorted(ranked)
        near[near == len(entry)] = 0
        found = np.flatnonzero(entry[near] == ranked) if len(entry) else np.empty(0, dtype=np.intp)
        places.append(found)
        rows.append(near[found])
    owners = np.repeat(np.arange(len(lists)), [len(found) for found in places])
    return owners, order[np.concatenate(places)], rows


def _name_coverage(
    understanding: Understanding, names: Sequence[TermIds], statistics: Statistics
) -> npt.NDArray[np.float64]:
    """Share of the idf mass of a name's terms that the task mentions."""
    together = np.concatenate(names)
    if not len(together):
        return np.zeros(len(names))
    owners = np.repeat(np.arange(len(names)), [len(name) for name in names])
    idf = statistics.idf(together).astype(np.float64)
    named = idf * np.isin(together, understanding.ids)
    mass = np.bincount(owners, weights=idf, minlength=len(names))
    return np.bincount(owners, weights=named, minlength=len(names)) / np.maximum(mass, 1e-9)


def _bigrams(
    understanding: Understanding,
    records: Sequence[ForwardRecord],
    idf: npt.NDArray[np.float64],
    weights: ScoringWeights,
) -> npt.NDArray[np.float64]:
    """Adjacent pairs in common, saturated by field weight, over the root of the task's mass."""
    owners, places, rows = _matches(understanding.pairs, [record.bigrams for record in records])
    if not len(owners):
        return np.zeros(len(records))
    worth = idf[understanding.pair_places].mean(axis=1)
    strength = np.concatenate(
        [record.bigram_weights[found] for record, found in zip(records, rows, strict=True)]
    )
    gains = worth[places] * strength / (strength + weights.bigrams_half)
    root = float(np.sqrt(worth.sum())) or 1.0
    return np.bincount(owners, weights=gains, minlength=len(records)) / root


def _dense(
    candidates: Sequence[Candidate], weights: ScoringWeights, t: float
) -> npt.NDArray[np.float64]:
    """Cosines as deviations from what unrelated texts have; nothing known counts as that."""
    cosines = np.array(
        [candidate.cosines or (weights.dense_mean, weights.dense_mean) for candidate in candidates]
    )
    deviations = (cosines - weights.dense_mean) / weights.dense_spread
    parts = (weights.dense_described, weights.dense_head)
    shares = np.array([(1.0 - t) * short + t * long for short, long in parts])
    return np.asarray(deviations @ shares, dtype=np.float64)


def _fill_slots(
    understanding: Understanding,
    names: Sequence[TermIds],
    statistics: Statistics,
    weights: ScoringWeights,
    order: list[int],
) -> tuple[list[int], dict[int, str]]:
    """Give each file format that the task names a skill about it among the first `slots`.

    A skill is about a format that its name says. Formats that a large share of the library
    mentions (JSON) are by the way and pull nothing in.
    """
    slots: dict[int, str] = {}
    for kind, words in understanding.formats.items():
        ids = term_ids(words)
        if float(statistics.idf(ids).min()) < weights.slot_idf:
            continue
        wanted = set(ids.tolist())
        about = [i for i in order if not wanted.isdisjoint(names[i].tolist())]
        if not about or about[0] in order[: weights.slots]:
            continue
        kept = [i for i in order if i != about[0]]
        at = weights.slots - 1 - len(slots)
        order = [*kept[:at], about[0], *kept[at:]]
        slots[about[0]] = kind
    return order, slots


def rrf(
    rankings: Sequence[Sequence[_K]], k: float = 60.0, weights: Sequence[float] | None = None
) -> list[tuple[_K, float]]:
    """Reciprocal rank fusion: sum of weight / (k + rank), best first, ties in order of arrival.

    Cormack, Clarke and Büttcher, SIGIR 2009.
    """
    fused: dict[_K, float] = {}
    for ranking, weight in zip(rankings, weights or [1.0] * len(rankings), strict=True):
        for rank, item in enumerate(dict.fromkeys(ranking), start=1):
            fused[item] = fused.get(item, 0.0) + weight / (k + rank)
    return sorted(fused.items(), key=lambda pair: -pair[1])


def explain(scored: Scored, key: RevisionKey) -> Mapping[str, float]:
    """Each part's contribution to the score of one candidate, with `score` and `evidence`."""
    place = scored.keys.index(key)
    parts = {name: float(values[place]) for name, values in scored.components.items()}
    return {
        **parts,
        "score": float(scored.scores[place]),
        "evidence": float(scored.evidence[place]),
    }
