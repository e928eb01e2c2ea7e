"""Section cosines of candidates, of which some have no section vectors yet."""

from __future__ import annotations

import numpy as np
import pytest

from skills.record import RevisionKey
from tasks.query.rerank import complete_section_cosines


def key(number: int) -> RevisionKey:
    return RevisionKey(f"crafts:{number}", 1)


def pairs(count: int) -> dict[RevisionKey, tuple[float, float]]:
    return {key(n): (0.01 * n, 0.02 * n) for n in range(count)}


def test_what_is_measured_stays() -> None:
    measured = {key(n): 0.5 + 0.01 * n for n in range(20)}
    assert complete_section_cosines(measured, pairs(20)) == measured
    assert complete_section_cosines({}, {}) == {}


def test_a_missing_one_is_on_the_line_of_the_others() -> None:
    cosines = pairs(30)
    measured = {
        one: 0.2 + 0.7 * max(pair) for one, pair in cosines.items() if one.skill_id[-1:] != "7"
    }
    found = complete_section_cosines(measured, cosines)
    assert found.keys() == cosines.keys()
    for one, pair in cosines.items():
        assert found[one] == pytest.approx(0.2 + 0.7 * max(pair))


def test_equal_cosines_give_the_mean() -> None:
    cosines = {key(n): (0.3, 0.3) for n in range(12)}
    measured = {key(n): float(value) for n, value in enumerate(np.linspace(0.2, 0.4, 11))}
    assert complete_section_cosines(measured, cosines)[key(11)] == pytest.approx(0.3)


def test_with_too_few_all_are_compared_by_the_same_vectors() -> None:
    cosines = pairs(20)
    found = complete_section_cosines({key(3): 0.9}, cosines)
    assert found == {one: max(pair) for one, pair in cosines.items()}


def test_a_candidate_with_sections_only_is_kept() -> None:
    measured = {key(n): 0.4 for n in range(20)}
    assert complete_section_cosines(measured, {}) == measured
