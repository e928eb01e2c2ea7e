"""Obstacles: what is searched for, which passages come first, and what stays out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.settings import DiffusionSettings
from graph.records import Adjacency, LinkType, Neighbour
from search.text.query_understanding import understand
from skills.events import QueryAsked
from skills.record import RevisionKey, Role
from tasks.query.diffuse import diffuse
from tasks.query.ranking import RankedSkill, Ranking
from tasks.query.select_passages import SkillPassages, make_passage_query
from tasks.query.session.obstacle import blend_words, encode_query, understand_query
from tasks.query.session.obstacle_passages import find_error_handling, put_error_handling_first
from tasks.query.session.refused import drop_refused
from tasks.query.session.state import SessionState
from tasks.services import Lazy
from tests.support.samples.query_context import make_context
from tests.support.samples.tiny import TinyEncoder
from tests.unit.tasks.query.test_assemble import Draft, select

WORDS = st.sampled_from(["oven", "dough", "flour", "yeast", "steam", "crust"])
TEXT = st.lists(WORDS, min_size=1).map(" ".join)


@given(TEXT, TEXT)
def test_a_task_weighs_no_more_than_its_obstacle(obstacle: str, task: str) -> None:
    blended = dict(zip(*_terms(blend_words(obstacle, task)), strict=True))
    asked = dict(zip(*_terms(understand(obstacle)), strict=True))
    about = dict(zip(*_terms(understand(task)), strict=True))
    assert set(blended) == {*asked, *about}
    share = min(sum(asked.values()) / sum(about.values()), 1.0)
    for term, weight in blended.items():
        expected = asked.get(term, 0.0) + share * about.get(term, 0.0)
        assert weight == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("obstacle", "task"), [("the crust burns", "do it"), ("?", "bake"), ("?", "t")]
)
def test_a_task_or_an_obstacle_of_function_words_alone(obstacle: str, task: str) -> None:
    blended = blend_words(obstacle, task)
    assert set(blended.terms) == {*understand(obstacle).terms, *understand(task).terms}
    assert np.isfinite(blended.weights).all()


def _terms(understanding: Any) -> tuple[tuple[str, ...], list[float]]:
    return understanding.terms, understanding.weights.tolist()


BLOCKS = [
    "Knead the dough for ten minutes.",
    "## Errors",
    "If the crust burns, lower the oven and cover the bread with foil.",
    "If the yeast is dead, buy fresh yeast and begin again.",
    "## Serving",
    "Serve the bread with butter and salt.",
]


def bread(number: int, **chosen: Any) -> SkillPassages:
    """A skill with two passages on errors."""
    skill = select(Draft("bread", "Bake bread", BLOCKS, 5.0, 0), number)
    parsed = skill.revision.parsed
    passages = tuple(
        replace(
            passage,
            role=Role.ERROR_HANDLING
            if parsed.text(passage.first_line, passage.last_line).startswith("If")
            else Role.STEP,
        )
        for passage in parsed.passages
    )
    revision = replace(skill.revision, parsed=replace(parsed, passages=passages))
    return replace(skill, revision=revision, chosen=replace(skill.chosen, **chosen))


def text_of(skill: SkillPassages, index: int) -> str:
    parsed = skill.revision.parsed
    passage = parsed.passages[index]
    return parsed.text(passage.first_line, passage.last_line)


def test_a_query_is_encoded_without_an_analysis_of_its_texts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request = QueryAsked(task="bake bread", session="s", obstacle="the crust burns\0")
    context = replace(make_context(None), request=request)
    encoder = TinyEncoder()
    context.services.encoder = Lazy(lambda: encoder)
    understanding = understand_query(context)
    monkeypatch.delattr("tasks.query.session.obstacle.understand")
    mixed = encoder.encode_queries(["the crust burns", "bake bread"]).sum(axis=0)
    assert encode_query(context, understanding) == pytest.approx(mixed / np.linalg.norm(mixed))


def test_passages_on_errors_that_match_are_found() -> None:
    skill = bread(0)
    query = make_passage_query(understand("the crust burns black"), None)
    (found,) = find_error_handling(skill, query)
    assert text_of(skill, found).startswith("If the crust burns")
    nothing = make_passage_query(understand("segmentation fault in libfoo"), None)
    assert find_error_handling(skill, nothing) == []


def test_skills_in_use_that_know_the_obstacle_come_first() -> None:
    context = replace(
        make_context(None),
        request=QueryAsked(session="s", obstacle="the crust burns black"),
        session=SessionState(in_use=("home:s1", "home:s2", "home:s3")),
    )
    best, ranked, unranked = bread(0), bread(1), bread(2, score=0.0)
    silent = select(Draft("tea", "Make tea", ["Boil water."], 5.0, 0), 3)
    silent = replace(silent, chosen=replace(silent.chosen, score=0.0))
    answer = put_error_handling_first(context, [best, ranked, unranked, silent])
    assert [one.chosen.skill_id for one in answer] == ["home:s1", "home:s2", "home:s0"]
    for skill in answer[:2]:
        assert skill.first
        assert text_of(skill, skill.passages[0]).startswith("If the crust burns")
    assert sorted(answer[0].passages) == sorted(ranked.passages)
    assert len(answer[1].passages) == 1
    assert answer[2] is best


def ranking(*skill_ids: str) -> Ranking:
    hits = tuple(
        RankedSkill(RevisionKey(name, 1), 10.0 - place, {}, ())
        for place, name in enumerate(skill_ids)
    )
    return Ranking(understand("bake"), np.zeros(2, np.float32), hits)


def test_refused_skills_leave_the_ranking_and_are_named() -> None:
    session = SessionState(refused={"a:b": "it failed in this session", "a:z": "it failed"})
    left = drop_refused(ranking("a:a", "a:b", "a:c"), session)
    assert [hit.key.skill_id for hit in left.hits] == ["a:a", "a:c"]
    assert left.refused == ("a:b",)
    same = ranking("a:a")
    assert drop_refused(same, SessionState()) is same


def test_relevance_flows_from_skills_in_use() -> None:
    neighbours = (Neighbour("a:linked", LinkType.DEPENDENCY, True, 1.0),)
    rows = {"a:used": Adjacency(neighbours, {(LinkType.DEPENDENCY, True): 1.0})}
    before = ranking(*(f"a:{letter}" for letter in "abcdefgh"), "a:linked")
    pointers = {hit.key.skill_id: 1 for hit in before.hits}

    def places(in_use: tuple[str, ...]) -> list[str]:
        after = diffuse(
            before,
            DiffusionSettings(),
            lambda ids: {name: rows[name] for name in ids if name in rows},
            pointers,
            in_use,
        )
        return [hit.key.skill_id for hit in after.hits]

    assert places(())[-1] == "a:linked"
    assert places(("a:used",)).index("a:linked") < 8
