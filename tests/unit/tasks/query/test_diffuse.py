"""Diffuse: mass moves along links only, so that a candidate without links gains nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.settings import DiffusionSettings
from graph.records import Adjacency, LinkType, Neighbour
from search.text.query_understanding import understand
from skills.record import RevisionKey
from tasks.query.diffuse import diffuse
from tasks.query.ranking import RankedSkill, Ranking

NAMES = [f"lib:s{n}" for n in range(8)]
LINKED = "linked to better matches"
Edge = tuple[str, str, LinkType, float]
SCORES = st.lists(st.floats(0.1, 50.0), min_size=3, max_size=len(NAMES))
CHOSEN = st.builds(
    DiffusionSettings,
    restart=st.floats(0.05, 0.95),
    weight=st.floats(0.0, 20.0),
    seeds=st.integers(1, 10),
    power=st.floats(0.0, 6.0),
    max_nodes=st.integers(1, 60),
)


def ranking_of(scores: Iterable[float], named_format: Mapping[str, str] | None = None) -> Ranking:
    formats = named_format or {}
    hits = tuple(
        RankedSkill(RevisionKey(name, 1), score, {}, ("matches",), formats.get(name, ""))
        for name, score in zip(NAMES, sorted(scores, reverse=True), strict=False)
    )
    return Ranking(understand("plan a trip"), None, hits, least_score=hits[-1].score if hits else 0)


def run(
    ranking: Ranking,
    edges: Sequence[Edge] = (),
    chosen: DiffusionSettings | None = None,
    pointers: Mapping[str, int] | None = None,
) -> Ranking:
    neighbours: dict[str, list[Neighbour]] = {}
    for source, target, kind, weight in edges:
        neighbours.setdefault(source, []).append(Neighbour(target, kind, True, weight))
        neighbours.setdefault(target, []).append(Neighbour(source, kind, False, weight))

    def read(skill_ids: Sequence[str]) -> dict[str, Adjacency]:
        rows = {}
        for skill_id in skill_ids:
            found = neighbours.get(skill_id, [])
            totals: dict[tuple[LinkType, bool], float] = {}
            for one in found:
                totals[one.type, one.forward] = totals.get((one.type, one.forward), 0) + one.weight
            rows[skill_id] = Adjacency(tuple(found), totals)
        return rows

    return diffuse(ranking, chosen or DiffusionSettings(), read, pointers or {})


@settings(deadline=None, max_examples=40)
@given(SCORES, CHOSEN)
def test_without_links_nothing_moves(scores: list[float], chosen: DiffusionSettings) -> None:
    ranking = ranking_of(scores)
    assert run(ranking, chosen=chosen).hits == ranking.hits


@settings(deadline=None, max_examples=60)
@given(
    SCORES,
    CHOSEN,
    st.lists(
        st.tuples(
            st.sampled_from(NAMES),
            st.sampled_from(NAMES),
            st.sampled_from(list(LinkType)),
            st.floats(0.1, 1.0),
        ).filter(lambda edge: edge[0] != edge[1]),
        max_size=12,
    ),
)
def test_a_candidate_without_links_gains_nothing(
    scores: list[float], chosen: DiffusionSettings, edges: list[Edge]
) -> None:
    ranking = ranking_of(scores)
    linked = {
        end for source, target, kind, _ in edges for end in (source, target)
        if kind is not LinkType.CONFLICT
    }  # fmt: skip
    before = {hit.key: hit for hit in ranking.hits}
    for hit in run(ranking, edges, chosen).hits:
        if hit.key.skill_id not in linked:
            assert hit == before[hit.key]


def test_a_seed_without_links_falls_behind_a_linked_one() -> None:
    ranking = ranking_of([9.0, 8.0, 5.0, 4.9, 1.0])
    found = run(ranking, [(NAMES[0], NAMES[3], LinkType.DEPENDENCY, 1.0)])
    assert [hit.key.skill_id for hit in found.hits] == [NAMES[n] for n in (0, 1, 3, 2, 4)]
    assert [LINKED in hit.why for hit in found.hits] == [False, False, True, False, False]
    assert "diffusion" not in found.hits[3].parts


def test_what_search_did_not_find_enters_over_links_when_it_is_published() -> None:
    ranking = ranking_of([9.0, 8.0, 5.0, 1.0])
    edges = [(NAMES[0], other, LinkType.DEPENDENCY, 1.0) for other in ("lib:new", "lib:gone")]
    found = run(ranking, edges, pointers={"lib:new": 7})
    entered = [hit for hit in found.hits if hit.key.skill_id not in NAMES]
    assert [hit.key for hit in entered] == [RevisionKey("lib:new", 7)]
    assert entered[0].score == 1.0 + entered[0].parts["diffusion"]


def test_what_enters_over_links_starts_with_the_lowest_score_of_any_candidate() -> None:
    ranking = replace(ranking_of([9.0, 8.0, 5.0, 4.0]), least_score=0.5)
    found = run(ranking, [(NAMES[0], "lib:new", LinkType.DEPENDENCY, 1.0)], pointers={"lib:new": 7})
    (entered,) = (hit for hit in found.hits if hit.key.skill_id == "lib:new")
    assert entered.parts["least_score"] == 0.5
    assert entered.score == sum(entered.parts.values())


def test_owners_of_named_formats_keep_their_place() -> None:
    ranking = ranking_of([9.0, 8.0, 5.0, 4.9, 1.0], {NAMES[2]: "pdf"})
    found = run(ranking, [(NAMES[0], NAMES[3], LinkType.DEPENDENCY, 1.0)])
    assert [hit.key.skill_id for hit in found.hits] == [NAMES[n] for n in (0, 1, 2, 3, 4)]


USED_TOGETHER = LinkType.USED_TOGETHER


def test_companions_of_the_best_match_come_forward() -> None:
    ranking = ranking_of([9.0, 8.0, 5.0, 4.9, 4.8, 1.0])
    edges = [(NAMES[0], NAMES[5], USED_TOGETHER, 0.9)]
    found = run(ranking, edges)
    assert found.hits[2].key.skill_id == NAMES[5]
    assert "helped together with better matches in past tasks" in found.hits[2].why
    # The spread is 5 - 1; the seeds' shares are those of the fourth powers of their scores.
    share = 9.0**4 / sum(score**4 for score in (9.0, 8.0, 5.0, 4.9, 4.8))
    assert found.hits[2].parts["used_together"] == pytest.approx(4.0 * 4.0 * 0.9 * share)


def test_each_companion_gets_all_of_its_share() -> None:
    ranking = ranking_of([9.0, 8.0, 5.0, 4.9, 4.8, 1.1, 1.0])
    alone = run(ranking, [(NAMES[0], NAMES[6], USED_TOGETHER, 0.5)])
    both = run(
        ranking,
        [(NAMES[0], NAMES[n], USED_TOGETHER, 0.5) for n in (5, 6)],
    )
    gained = [
        next(hit for hit in found.hits if hit.key.skill_id == NAMES[6]).parts["used_together"]
        for found in (alone, both)
    ]
    assert gained[0] == gained[1]


def test_companions_can_be_turned_off() -> None:
    ranking = ranking_of([9.0, 8.0, 5.0, 4.9, 4.8, 1.0])
    edges = [(NAMES[0], NAMES[5], USED_TOGETHER, 0.9)]
    found = run(ranking, edges, DiffusionSettings(companions=0, used_together_weight=0))
    assert found.hits == ranking.hits


def test_a_link_from_use_does_not_count_against_its_direction() -> None:
    ranking = ranking_of([9.0, 8.0, 5.0, 4.9, 4.8, 1.0])
    assert run(ranking, [(NAMES[5], NAMES[0], USED_TOGETHER, 0.9)]).hits == ranking.hits
