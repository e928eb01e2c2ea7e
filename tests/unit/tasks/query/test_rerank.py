"""How the scores of a reranker order candidates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import UsageError
from config.load_settings import load_settings
from skills.record import RevisionKey
from tasks.query.ranking import RankedSkill
from tasks.query.rerank import combine_scores, reorder_hits


def hits(*scores: float, slot: int = -1) -> tuple[RankedSkill, ...]:
    return tuple(
        RankedSkill(
            RevisionKey(f"crafts:{at}", at + 1),
            score,
            {"bm25f": score},
            ("its text matches",),
            "pdf" if at == slot else "",
        )
        for at, score in enumerate(scores)
    )


def ids(ranked: tuple[RankedSkill, ...]) -> list[int]:
    return [hit.key.seq - 1 for hit in ranked]


def scores_for(ranked: tuple[RankedSkill, ...], *values: float | None) -> dict[RevisionKey, float]:
    return {hit.key: value for hit, value in zip(ranked, values, strict=False) if value is not None}


def test_a_better_second_score_moves_a_candidate_up() -> None:
    ranked = hits(3.0, 2.9, 2.8)
    moved = reorder_hits(ranked, scores_for(ranked, 0.2, 0.1, 0.9), 1.0, "rerank")
    assert ids(moved) == [2, 0, 1]
    assert [hit.score for hit in moved] == [3.0, 2.9, 2.8]


def test_a_clear_lead_stays() -> None:
    ranked = hits(9.0, 2.9, 2.8)
    moved = reorder_hits(ranked, scores_for(ranked, 0.1, 0.2, 0.9), 1.0, "rerank")
    assert ids(moved) == [0, 2, 1]


def test_a_hit_without_a_score_keeps_its_place() -> None:
    ranked = hits(3.0, 2.9, 2.8, 2.7)
    moved = reorder_hits(ranked, scores_for(ranked, 0.1, None, 0.9, None), 1.0, "late")
    assert ids(moved) == [2, 1, 0, 3]


def test_a_hit_that_holds_a_place_for_a_format_keeps_it() -> None:
    ranked = hits(3.0, 2.9, 2.8, slot=1)
    moved = reorder_hits(ranked, scores_for(ranked, 0.1, 0.2, 0.9), 1.0, "late")
    assert ids(moved) == [2, 1, 0]


def test_a_single_candidate_keeps_its_place() -> None:
    ranked = hits(3.0, 2.0)
    assert reorder_hits(ranked, scores_for(ranked, 0.5), 1.0, "late") == ranked
    assert reorder_hits((), {}, 1.0, "late") == ()


def test_parts_add_up_to_the_score_and_a_gain_has_a_reason() -> None:
    ranked = hits(3.0, 2.9, 2.8)
    moved = reorder_hits(ranked, scores_for(ranked, 0.1, 0.2, 0.9), 1.0, "rerank")
    for hit in moved:
        assert sum(hit.parts.values()) == pytest.approx(hit.score)
    assert "the cross-encoder scores it higher" in moved[0].why
    assert moved[1].why == ("its text matches",)


def test_scores_that_are_all_alike_change_nothing() -> None:
    ranked = hits(3.0, 2.9, 2.8)
    assert ids(reorder_hits(ranked, scores_for(ranked, 0.4, 0.4, 0.4), 5.0, "late")) == [0, 1, 2]


finite = st.floats(-50, 50, allow_nan=False)


@given(
    st.lists(st.tuples(finite, st.none() | finite, st.booleans()), max_size=20),
    st.floats(0, 10),
)
@settings(max_examples=100, deadline=None)
def test_reordering_keeps_every_hit_and_every_score(
    rows: list[tuple[float, float | None, bool]], weight: float
) -> None:
    ordered = sorted(rows, key=lambda row: -row[0])
    ranked = tuple(hit for at, row in enumerate(ordered) for hit in hits(*[row[0]] * (at + 1))[at:])
    given_scores = scores_for(ranked, *(row[1] for row in ordered))
    moved = reorder_hits(ranked, given_scores, weight, "late")
    assert sorted(ids(moved)) == ids(ranked)
    assert [hit.score for hit in moved] == [hit.score for hit in ranked]
    for before, after in zip(ranked, moved, strict=True):
        assert before.key in given_scores or before == after


def test_the_scale_of_the_second_score_does_not_matter() -> None:
    first, second = np.array([3.0, 2.0, 1.0]), np.array([1.0, 5.0, 2.0])
    assert combine_scores(first, 100 * second + 7, 1.0) == pytest.approx(
        combine_scores(first, second, 1.0)
    )
    assert combine_scores(first, second, 0.0) == pytest.approx(first)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MILLISECONDS", "0"),
        ("LATE_CANDIDATES", "1"),
        ("CANDIDATES", "1"),
        ("BATCH_SIZE", "0"),
        ("WEIGHT", "-1"),
        ("LATE_WEIGHT", "much"),
        ("MAX_LENGTH", "4"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"SKILLBUS_RERANKER__{name}", value)
    with pytest.raises(UsageError, match=f"SKILLBUS_RERANKER__{name}"):
        load_settings()
