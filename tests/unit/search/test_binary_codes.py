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
def test_refined_estimates_are_closer(dimension: int) -> None:
    vectors, codes = make(dimension)
    query = vectors[7] + 0.5 * vectors[8]
    query /= np.linalg.norm(query)
    cosines, rows = vectors[:-1] @ query, np.arange(ROWS - 1)

    def error(estimates: np.ndarray) -> float:
        return float(np.std(estimates - cosines))  # they are up to a constant

    rough = error(codes.estimate(query, ROWS)[:-1])
    refined = error(codes.refine(query, rows))
    assert refined < 0.8 * rough < np.std(cosines)
    assert codes.refine(query, np.array([ROWS - 1])).tolist() == [-np.inf]


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
