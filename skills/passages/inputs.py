"""Inputs of passage selection: weights, the query, and the skill."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from skills.record import ParsedSkill

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class PassageWeights:
    """Constants of passage selection, with their sources.

    section_*, passage_*, neighbour, chapter: weights of method F's terms. bm25_k1: Robertson's
    usual value.

    gap_tokens, gap_power, cost_tokens, cost, breadth_*: constants of `compute_margins`. The number
    of needed passages hardly depends on the length of the skill, so each passage is less probable
    in a longer skill (gap_power). A passage with e times the tokens must be nearer to the best by
    `cost`. A query with e times the terms needs more passages, by `breadth`; the ratio is clipped
    at breadth_limit and its inverse, for lack of data. lexical_gap: scores without vectors spread
    less.

    section_bm25, neighbour, gap_power, cost and breadth were chosen from a grid of 288 over 140
    queries of 47 skills, leaving out the skill under test. The values are from the middle of the
    good range, not the best values.

    mmr_*: SkillPager's values (section 3.2, equations 2 to 4). top_k: the row of SkillPager's
    table 7 in which passages and their predecessors are about as many as in its table 4.
    graph_gain: not in the paper; with this value the walk reduces tokens as much as in its table 4.
    chunk_tokens: SkillPager section 4.3.
    """

    section_cosine: float = 1.0
    section_bm25: float = 0.35
    passage_cosine: float = 0.25
    passage_bm25: float = 0.25
    neighbour: float = 0.15
    chapter: float = 0.4
    bm25_k1: float = 1.2
    bm25_b: float = 0.5
    gap_tokens: int = 1400
    gap_power: float = 0.65
    lexical_gap: float = 0.55
    cost: float = 0.35
    cost_tokens: int = 40
    breadth: float = 2.0
    breadth_terms: int = 12
    breadth_limit: float = 2.0
    mmr_lambda: float = 0.7
    mmr_small: int = 20
    mmr_large: int = 60
    mmr_many: int = 100
    top_k: int = 10
    graph_gain: float = 0.15
    chunk_tokens: int = 256


DEFAULT_WEIGHTS = PassageWeights()


@dataclass(frozen=True, slots=True)
class PassageQuery:
    """A query: a unit vector (d,) or None, sorted term ids (n,) and their weights (n,)."""

    vector: Floats | None
    terms: npt.NDArray[np.uint64]
    weights: Floats


@dataclass(frozen=True, slots=True)
class PassageInput:
    """A skill from which passages are selected.

    offsets, terms, counts: term counts of the passages in compressed sparse rows, (P + 1,), (n,),
    (n,). section_vectors: unit vectors of `section_texts(parsed)`, (S, d), None until they are
    embedded. passage_vectors: unit vectors of `passage_texts(parsed)`, (P, d), or None.
    """

    parsed: ParsedSkill
    offsets: npt.NDArray[np.int32]
    terms: npt.NDArray[np.uint64]
    counts: npt.NDArray[np.uint16]
    section_vectors: Floats | None = None
    passage_vectors: Floats | None = None


def cosines(query: PassageQuery, vectors: Floats | None) -> Floats | None:
    """Return the cosines of the query with unit vectors (n,); None if either is missing."""
    if query.vector is None or vectors is None:
        return None
    return np.asarray(vectors @ query.vector, np.float32)
