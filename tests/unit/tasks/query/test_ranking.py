"""From scored candidates to a ranking."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from search.protocol import SearchIndex
from search.scoring.library_statistics import LibraryStatistics
from search.scoring.record_source import MemoryRecords
from search.scoring.score_candidates import ScoredCandidates
from search.text.query_understanding import understand
from skills.record import RevisionKey
from tasks.query.process_state.pointers import Pointers
from tasks.query.process_state.published_library import LibrarySnapshot
from tasks.query.ranking import Ranking, TaskQuery, build_ranking, estimate_probabilities

STATISTICS = LibraryStatistics()
RECORDS = MemoryRecords(cast(SearchIndex, None))
VECTOR = np.array([1.0, 0.0], dtype=np.float32)


def rank(
    nearness: tuple[float, float],
    scores: tuple[float, float] = (2.0, 1.0),
    limit: int | None = None,
) -> Ranking:
    keys = (RevisionKey("home:a", 1), RevisionKey("home:b", 1))
    values = np.array(scores)
    scored = ScoredCandidates(keys, values, {"bm25f": values}, values / 2, np.array(nearness))
    snapshot = LibrarySnapshot(Pointers({"home:a": 1, "home:b": 1}), LibraryStatistics())
    query = TaskQuery(snapshot, understand("mend the net"), VECTOR)
    return build_ranking(query, scored, limit)


@pytest.mark.parametrize(
    ("nearness", "expected"),
    [((np.nan, np.nan), [None, None]), ((np.nan, 0.4), [None, 0.4]), ((0.0, 0.4), [0.0, 0.4])],
)
def test_nearness_is_unknown_where_a_candidate_has_no_cosine(
    nearness: tuple[float, float], expected: list[float | None]
) -> None:
    ranking = rank(nearness)
    assert [hit.nearness for hit in ranking.hits] == expected
    assert [hit.evidence for hit in ranking.hits] == [1.0, 0.5]


def test_a_candidate_without_evidence_is_no_hit() -> None:
    assert len(rank((0.0, 0.0), (2.0, 0.0)).hits) == 1


def test_a_limit_leaves_the_best_hits_and_the_lowest_score_of_all() -> None:
    ranking = rank((0.0, 0.0), (2.0, 1.0), limit=1)
    assert [hit.key.skill_id for hit in ranking.hits] == ["home:a"]
    assert ranking.least_score == 1.0


def test_the_first_candidates_and_the_library_get_probabilities() -> None:
    ranking = estimate_probabilities(rank((0.5, 0.4)), STATISTICS, RECORDS)
    assert ranking.probability is not None
    first, second = (hit.probability or 0.0 for hit in ranking.hits)
    assert 0 < second < first <= ranking.probability < 1


def test_a_ranking_without_hits_has_the_probability_0() -> None:
    empty = replace(rank((0.5, 0.4)), hits=())
    assert estimate_probabilities(empty, STATISTICS, RECORDS).probability == 0
