"""From scored candidates to a ranking."""

from __future__ import annotations

import numpy as np
import pytest

from search.scoring.library_statistics import LibraryStatistics
from search.scoring.score_candidates import ScoredCandidates
from search.text.query_understanding import understand
from skills.record import RevisionKey
from tasks.query.process_state.published_library import LibrarySnapshot
from tasks.query.ranking import TaskQuery, build_ranking

VECTOR = np.array([1.0, 0.0], dtype=np.float32)


@pytest.mark.parametrize(
    ("cosines", "best_cosine"), [((0.0, 0.0), None), ((0.0, 0.4), 0.4), ((-0.2, 0.3), 0.3)]
)
def test_nearness_is_unknown_where_no_candidate_has_a_cosine(
    cosines: tuple[float, float], best_cosine: float | None
) -> None:
    keys = (RevisionKey("home:a", 1), RevisionKey("home:b", 1))
    scores = np.array([2.0, 1.0])
    scored = ScoredCandidates(keys, scores, {"bm25f": scores}, scores, np.array(cosines))
    snapshot = LibrarySnapshot({"home:a": 1, "home:b": 1}, LibraryStatistics())
    query = TaskQuery(snapshot, understand("mend the net"), VECTOR)
    assert build_ranking(query, scored).best_cosine == best_cosine
