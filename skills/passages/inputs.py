"""What paging is given: constants, the query, the skill, and the texts that stand for its parts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from skills.record import ParsedSkill

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class PassageWeights:
    """The constants of paging, each with where it comes from.

    section_*, passage_*, neighbour, chapter: the weights of method F's terms. bm25_k1: Robertson's
    usual.

    gap: passages are kept down to this far below the best, where a skill of gap_tokens tokens, a
    passage of cost_tokens tokens and a query of breadth_terms distinct terms are concerned; 4.0,
    4.8 and 5.7 give token reductions of about .60, .50 and .40 over skills of 1,000 to 4,000
    tokens, and larger ones over longer skills. gap_power: how much a query needs
    hardly depends on how long the skill is, so the chance that a passage is needed falls as the
    skill grows. cost: a passage of e times the tokens must stand this much nearer to the best.
    breadth: a query of e times the terms asks for this much more; beyond breadth_limit times more
    or fewer terms nothing is known. lexical_gap: without vectors scores spread less; the gap is
    this share of it. odds: a passage's worth beside other skills falls by e^odds for each
    1 of margin. Taken alone the odds of being needed fall by e^.5, but a skill is of use once all
    that is needed of it is there: at .25 more required lines survive a budget
    (`tests/bench/spend_budget.py`).

    section_bm25, neighbour, gap_power, cost and breadth were chosen from a grid of 288 over 140
    queries of 47 skills by `tests/bench/choose_paging.py`, without the skill they are tried on.
    The values stand in the middle of the good ones, not at the best.

    mmr_*: SkillPager's (its section 3.2, equations 2 to 4). top_k: the row of its table 7 whose
    passages, their predecessors added, are about as many as its table 4 says. graph_gain: the
    paper gives no figure; with this one the walk reduces as much as in its table 4.
    chunk_tokens: its section 4.3.
    """

    section_cosine: float = 1.0
    section_bm25: float = 0.35
    passage_cosine: float = 0.25
    passage_bm25: float = 0.25
    neighbour: float = 0.15
    chapter: float = 0.4
    bm25_k1: float = 1.2
    bm25_b: float = 0.5
    gap: float = 4.2
    gap_tokens: int = 1400
    gap_power: float = 0.65
    lexical_gap: float = 0.55
    cost: float = 0.35
    cost_tokens: int = 40
    breadth: float = 2.0
    breadth_terms: int = 12
    breadth_limit: float = 2.0
    odds: float = 0.25
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
    """What is asked: a unit vector (d,) or None, sorted term ids (n,) and their weights (n,)."""

    vector: Floats | None
    terms: npt.NDArray[np.uint64]
    weights: Floats


@dataclass(frozen=True, slots=True)
class PassageInput:
    """One skill to page.

    offsets, terms, counts: term counts of the passages' own text in compressed sparse rows,
    (P + 1,), (n,), (n,). section_vectors: unit vectors of `section_texts(parsed)`, (S, d), None
    while they are not embedded. passage_vectors: the same of `passage_texts(parsed)`, (P, d).
    """

    parsed: ParsedSkill
    offsets: npt.NDArray[np.int32]
    terms: npt.NDArray[np.uint64]
    counts: npt.NDArray[np.uint16]
    section_vectors: Floats | None = None
    passage_vectors: Floats | None = None


def cosines(query: PassageQuery, vectors: Floats | None) -> Floats | None:
    """Cosine of the query and each of some unit vectors (n,); None where either is missing."""
    if query.vector is None or vectors is None:
        return None
    return np.asarray(vectors @ query.vector, np.float32)
