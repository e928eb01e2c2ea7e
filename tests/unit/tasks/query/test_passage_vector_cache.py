"""Passage vectors kept in the process: by revision and encoder, the least recent dropped first."""

from __future__ import annotations

import numpy as np

from skills.record import RevisionKey
from tasks.query.process_state.passage_vectors import PassageVectorCache


def vectors(count: int) -> np.ndarray:
    return np.full((count, 4), count, np.float32)


def test_vectors_are_of_one_revision_and_encoder() -> None:
    cache = PassageVectorCache()
    cache.put("m", RevisionKey("a:b", 1), vectors(3))
    assert cache.get("m", RevisionKey("a:b", 2)) is None
    assert cache.get("other", RevisionKey("a:b", 1)) is None
    kept = cache.get("m", RevisionKey("a:b", 1))
    assert kept is not None
    assert kept.shape == (3, 4)


def test_the_least_recently_used_are_dropped() -> None:
    cache = PassageVectorCache(max_numbers=24)
    keys = [RevisionKey(f"a:{name}", 1) for name in "xyz"]
    cache.put("m", keys[0], vectors(3))
    cache.put("m", keys[1], vectors(3))
    assert cache.get("m", keys[0]) is not None
    cache.put("m", keys[2], vectors(3))
    assert cache.get("m", keys[1]) is None
    assert cache.get("m", keys[0]) is not None
    cache.put("m", keys[0], vectors(6))
    assert [cache.get("m", key) is not None for key in keys] == [True, False, False]


def test_one_that_is_larger_than_the_limit_is_kept_alone() -> None:
    cache = PassageVectorCache(max_numbers=8)
    cache.put("m", RevisionKey("a:x", 1), vectors(1))
    cache.put("m", RevisionKey("a:y", 1), vectors(9))
    assert cache.get("m", RevisionKey("a:x", 1)) is None
    assert cache.get("m", RevisionKey("a:y", 1)) is not None
