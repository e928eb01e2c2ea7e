"""Estimates of cosines from binary codes, and the rows that they choose."""

from __future__ import annotations

import numpy as np
import pytest

from search.binary_codes import BinaryCodes, likely_nearest

ROWS = 4_000


def make(dimension: int, seed: int = 1) -> tuple[np.ndarray, BinaryCodes]:
    """Unit vectors that mostly point one way, the last of them zero, and their codes."""
    drawn = np.random.default_rng(seed).normal(size=(ROWS, dimension)).astype(np.float32) + 1.0
    vectors = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    vectors[-1] = 0.0
    codes = BinaryCodes.create(vectors.mean(axis=0), ROWS)
    codes.encode(0, vectors, vectors.any(axis=1).astype(np.float32))
    return vectors, codes


@pytest.mark.parametrize("dimension", [384, 100])
def test_estimates_follow_the_cosines(dimension: int) -> None:
    vectors, codes = make(dimension)
    query = vectors[7] + 0.5 * vectors[8]
    query /= np.linalg.norm(query)
    estimates, cosines = codes.estimate(query, ROWS), vectors[:-1] @ query
    assert np.corrcoef(estimates[:-1], cosines)[0, 1] > 0.5
    assert estimates[-1] == -np.inf  # a row without a vector


def test_the_nearest_rows_are_among_the_likely_ones() -> None:
    vectors, codes = make(384)
    allowed = np.arange(ROWS) % 2 == 0
    for place in range(0, 60, 2):
        query = vectors[place] + 0.7 * vectors[place + 100]
        query /= np.linalg.norm(query)
        for passing in (None, allowed):
            rows = likely_nearest(codes, query, ROWS, 200, passing)
            assert len(set(rows.tolist())) == 200
            assert passing is None or allowed[rows].all()
            assert {place, place + 100} <= set(rows.tolist())
    few = np.zeros(ROWS, dtype=np.bool_)
    few[[3, 5]] = True
    assert likely_nearest(codes, vectors[0], ROWS, 200, few).tolist() == [3, 5]
    few[10:300] = True
    found = likely_nearest(codes, vectors[0], ROWS, 200, few)
    assert few[found].all()
