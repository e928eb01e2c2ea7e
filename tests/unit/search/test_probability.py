"""Probabilities of ranked skills: what they rise with, and how calibration is measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.scoring.probability import (
    ProbabilityModel,
    RankedEvidence,
    compute_features,
    feature_names,
    load_probability_model,
)


def evidence(*scores: float, t: float = 0.0, skills: int = 12_000) -> RankedEvidence:
    values = np.array(scores)
    return RankedEvidence(
        scores=values,
        evidence=values / 4,
        nearness=values / 20,
        descriptions=values / 40,
        matched=np.log1p(values * 3),
        mass=30.0,
        skills=skills,
        long_task_weight=t,
    )


def first(seen: RankedEvidence) -> float:
    return float(load_probability_model().estimate(seen).skills[0])


@pytest.mark.parametrize("t", [0.0, 0.5, 1.0])
def test_a_clear_lead_is_more_probable_than_a_narrow_one(t: float) -> None:
    assert first(evidence(9, 3, 2, t=t)) > first(evidence(9, 8.9, 2, t=t)) + 0.1


@pytest.mark.parametrize("t", [0.0, 1.0])
def test_more_evidence_means_a_likelier_library(t: float) -> None:
    model = load_probability_model()
    few, many = (model.estimate(evidence(*s, t=t)).library for s in ((3, 2), (12, 8)))
    assert few < many


@given(
    st.lists(st.floats(0.01, 30), min_size=1, max_size=20),
    st.floats(0, 1),
    st.integers(0, 100_000),
)
def test_probabilities_are_between_0_and_1_in_any_library(
    scores: list[float], t: float, skills: int
) -> None:
    seen = evidence(*sorted(scores, reverse=True), t=t, skills=skills)
    found = load_probability_model().estimate(replace(seen, nearness=seen.nearness * np.nan))
    assert len(found.skills) == len(scores)
    assert ((found.skills >= 0) & (found.skills <= 1)).all()
    assert found.skills[0] <= found.library <= 1


def test_without_candidates_there_is_nothing_to_be_right() -> None:
    found = load_probability_model().estimate(evidence())
    assert (len(found.skills), found.library) == (0, 0.0)


def test_each_feature_has_a_column_for_short_and_for_long_tasks() -> None:
    names = feature_names()
    short, long = (compute_features(evidence(9, 3, t=t)) for t in (0.0, 1.0))
    assert short.shape == (2, len(names))
    for place, name in enumerate(names):
        if name.endswith("_long"):
            assert not short[:, place].any()
            assert (long[:, place] == short[:, place - 1]).all()


def test_the_scale_of_scores_does_not_change_their_gap() -> None:
    gap = feature_names().index("gap_short")
    assert np.allclose(
        compute_features(evidence(16, 12, 8))[:, gap], compute_features(evidence(8, 6, 4))[:, gap]
    )


def test_among_small_scores_no_gap_is_large() -> None:
    gap = feature_names().index("gap_short")
    assert compute_features(evidence(0.13, skills=10))[0, gap] < 0.1
    assert compute_features(evidence(0.2, 0.1, skills=12_000))[0, gap] < 0.1


def test_weights_of_another_format_are_refused() -> None:
    with pytest.raises(ValueError, match="another format"):
        ProbabilityModel({"format": 2, "weights": {}})
