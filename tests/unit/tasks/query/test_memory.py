"""The memory in a query: owners that do not count alone move no skill by more than one place."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from search.scoring.memory_evidence import Contribution, SkillEvidence
from search.text.query_understanding import understand
from skills.record import RevisionKey
from tasks.query.memory.recall import add_reasons, add_remembered, nudge
from tasks.query.process_state.pointers import Pointers
from tasks.query.process_state.published_library import LibrarySnapshot
from tasks.query.ranking import Candidates, RankedSkill, Ranking, TaskQuery
from tests.support.samples.query_context import make_context

NAMES = [f"lib:s{n}" for n in range(8)]


def evidence(name: str, effect: float = 0.0, nudged: float = 0.0) -> SkillEvidence:
    helped = 1.0 if effect + nudged > 0 else 0.0
    said = Contribution("q", "ann", 1.0, helped, 1.0 - helped)
    return SkillEvidence(name, effect, effect, nudged, (said,))


def ranking_of(
    scores: list[float], nudges: list[float], formats: frozenset[int] = frozenset()
) -> Ranking:
    hits = tuple(
        RankedSkill(
            RevisionKey(name, 1), score, {"bm25f": score}, (), "pdf" if at in formats else ""
        )
        for at, (name, score) in enumerate(zip(NAMES, sorted(scores, reverse=True), strict=False))
    )
    remembered = {
        name: evidence(name, nudged=value)
        for name, value in zip(NAMES, nudges, strict=False)
        if value
    }
    return Ranking(understand("plan a trip"), None, hits, remembered=remembered)


def order(ranking: Ranking) -> list[str]:
    return [hit.key.skill_id for hit in ranking.hits]


@given(
    st.lists(st.floats(0.1, 50.0), min_size=1, max_size=8),
    st.lists(st.floats(-20.0, 20.0), min_size=8, max_size=8),
    st.frozensets(st.integers(0, 7), max_size=2),
)
def test_no_skill_moves_by_more_than_one_place(
    scores: list[float], nudges: list[float], formats: frozenset[int]
) -> None:
    ranking = ranking_of(scores, nudges, formats)
    before, after = order(ranking), order(nudge(ranking))
    assert sorted(before) == sorted(after)
    assert all(abs(after.index(name) - at) <= 1 for at, name in enumerate(before))
    assert all(after[at] == before[at] for at in formats if at < len(before))


@given(st.lists(st.floats(0.1, 50.0), min_size=2, max_size=8))
def test_parts_add_up_and_scores_stay_with_the_places(scores: list[float]) -> None:
    ranking = ranking_of(scores, [0.0, 100.0])
    moved = nudge(ranking)
    assert order(moved)[:2] == NAMES[1::-1]
    assert [hit.score for hit in moved.hits] == [hit.score for hit in ranking.hits]
    for hit in moved.hits:
        assert abs(sum(hit.parts.values()) - hit.score) < 1e-9
    assert moved.hits[0].why == (
        "helped with 1 similar task, by too few owners to move it further",
    ) or (ranking.hits[0].score == ranking.hits[1].score)


def test_a_nudge_never_lowers_the_score_of_what_moves_up() -> None:
    """Also where places do not follow scores, as after diffusion."""
    ranking = ranking_of([9.0, 5.0], [0.0, 3.0])
    upper, lower = ranking.hits
    ranking = replace(ranking, hits=(replace(lower, score=5.0), replace(upper, score=9.0)))
    same = nudge(ranking)
    assert order(same) == order(ranking)
    ranking = replace(ranking, remembered={NAMES[0]: evidence(NAMES[0], nudged=1.0)})
    first, second = nudge(ranking).hits
    assert (first.key.skill_id, first.score, second.score) == (NAMES[0], 9.0, 5.0)
    assert first.why


def test_a_nudge_that_does_not_reach_the_neighbour_changes_nothing() -> None:
    ranking = ranking_of([9.0, 5.0], [0.0, 3.0])
    assert nudge(ranking) == ranking


def test_reasons_name_what_moved_a_skill() -> None:
    ranking = replace(
        ranking_of([9.0, 5.0, 1.0], []),
        remembered={
            NAMES[0]: evidence(NAMES[0], effect=4.0),
            NAMES[1]: evidence(NAMES[1], effect=-2.0),
            NAMES[2]: evidence(NAMES[2], effect=0.1),
        },
    )
    assert [hit.why for hit in add_reasons(ranking).hits] == [
        ("helped with 1 similar task",),
        ("rejected for 1 similar task",),
        (),
    ]


def test_remembered_skills_become_candidates_within_the_filters() -> None:
    snapshot = LibrarySnapshot(Pointers({"lib:a": 1, "lib:b": 2, "other:c": 3}), statistics=None)  # type: ignore[arg-type]
    names = ("lib:a", "lib:b", "other:c", "gone:d")
    remembered = {name: evidence(name, effect=2.0) for name in names}
    remembered["lib:b"] = evidence("lib:b", effect=-1.0, nudged=3.0)
    query = TaskQuery(snapshot, understand("plan a trip"), None, remembered)
    candidates = Candidates(query, [])

    def added(**filters: tuple[str, ...]) -> list[str]:
        context = make_context(object(), filters=filters)
        return [key.skill_id for key in add_remembered(context, candidates).keys]

    assert added() == ["lib:a", "other:c"]
    assert added(source=("other",)) == ["other:c"]
    assert added(licence=("MIT",)) == []
