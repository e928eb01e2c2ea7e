"""The floor of evidence: monotone, continuous, and the same for words alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search.scoring.evidence_floor import (
    TYPICAL_COSINE,
    evidence_floor,
    evidence_strength,
    has_evidence,
)

FLOORS = (1.65, 4.1)


@given(st.floats(0, 30), st.floats(0, 30), st.floats(-1, 1), st.integers(1, 100_000))
@settings(max_examples=100, deadline=None)
def test_more_evidence_is_never_weaker(
    low: float, more: float, best_cosine: float, skills: int
) -> None:
    assert evidence_strength(low + more, best_cosine, skills) >= evidence_strength(
        low, best_cosine, skills
    )
    assert evidence_strength(low, min(best_cosine + 0.1, 1.0), skills) >= evidence_strength(
        low, best_cosine, skills
    )
    assert evidence_strength(low, best_cosine, skills) >= evidence_strength(
        low, best_cosine, skills + 1000
    )


def test_unknown_nearness_is_typical() -> None:
    assert evidence_strength(6.0, None, 500) == evidence_strength(6.0, TYPICAL_COSINE, 500)


def test_the_floor_goes_from_short_to_long() -> None:
    assert evidence_floor(0.0, *FLOORS) == pytest.approx(1.65)
    assert evidence_floor(1.0, *FLOORS) == pytest.approx(4.1)
    assert evidence_floor(0.5, *FLOORS) == pytest.approx((1.65 * 4.1) ** 0.5)


def test_words_and_meaning_together() -> None:
    assert has_evidence(12.0, 0.5, 12_000, 1.0, FLOORS, near=0.55)
    assert not has_evidence(6.0, 0.4, 12_000, 1.0, FLOORS, near=0.55)
    assert has_evidence(6.0, 0.4, 12_000, 0.0, FLOORS, near=0.55)
    assert has_evidence(6.0, None, 12_000, 0.0, FLOORS, near=0.55)


def test_without_a_word_nearness_decides() -> None:
    assert has_evidence(0.0, 0.6, 100, 0.0, FLOORS, near=0.55)
    assert not has_evidence(0.0, 0.5, 100, 0.0, FLOORS, near=0.55)
    assert not has_evidence(0.0, None, 100, 0.0, FLOORS, near=0.55)
