"""Rewrite: further queries add candidates behind the first places, and take none away."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from search.text.query_understanding import understand
from skills.record import RevisionKey
from tasks.query.language_model.rewrite import fuse_rankings, rewrite_request
from tasks.query.ranking import RankedSkill, Ranking

NAMES = [f"skill-{number:02}" for number in range(40)]


def make_ranking(names: list[str]) -> Ranking:
    hits = tuple(
        RankedSkill(RevisionKey(name, 1), 100.0 / (place + 1), {}, ())
        for place, name in enumerate(names)
    )
    return Ranking(understand("bake bread"), None, hits)


def keys(names: list[str]) -> list[RevisionKey]:
    return [RevisionKey(name, 1) for name in names]


def ids(ranking: Ranking) -> list[str]:
    return [hit.key.skill_id for hit in ranking.hits]


ORDERS = st.lists(st.sampled_from(NAMES), unique=True, max_size=40)


@given(own=ORDERS, others=st.lists(ORDERS, max_size=5))
@settings(max_examples=60, deadline=None)
def test_every_candidate_is_ranked_once_and_the_first_places_and_the_order_of_scores_stay(
    own: list[str], others: list[list[str]]
) -> None:
    fused = fuse_rankings(make_ranking(own), [keys(other) for other in others])
    assert sorted(ids(fused)) == sorted({*own, *(name for other in others for name in other)})
    assert ids(fused)[:10] == own[:10] or len(own) < 10
    scores = [hit.score for hit in fused.hits]
    assert scores == sorted(scores, reverse=True)
    if not others:
        assert ids(fused) == own


def test_what_several_queries_find_comes_before_what_one_finds() -> None:
    fused = fuse_rankings(
        make_ranking(NAMES[:20]), [keys(["new", "one"]), keys(["new", "two"]), keys(["new"])]
    )
    assert ids(fused)[10] == "new"
    assert ids(fused).index("new") < ids(fused).index("one")
    assert fused.hits[10].why == ("a rewritten query finds it",)


def test_the_number_of_queries_is_part_of_the_prompt() -> None:
    request = rewrite_request('bake "bread"\nnow', 3)
    assert "up to 3 search queries" in request.instructions
    assert request.data == 'task: "bake \\"bread\\" now"'
