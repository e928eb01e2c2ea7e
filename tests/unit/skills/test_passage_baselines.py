"""SkillPager's rule and the methods that it was compared with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from skills.passages import (
    DEFAULT_WEIGHTS,
    PassageInput,
    PassageQuery,
    get_line_ranges,
    select_all,
    select_by_graph_walk,
    select_mmr,
    select_top_k,
    split_into_chunks,
)
from skills.record import Role
from skills.token_count import count_tokens
from tests.support.samples.passages import parse, passage_input_of, query_of

CLOSE, FAR, OTHER = np.eye(8, dtype=np.float32)[:3]


def page_with(vectors: list[np.ndarray]) -> PassageInput:
    """A skill of one-line paragraphs with these vectors."""
    lines = ["# T"]
    for number in range(len(vectors)):
        lines += ["", f"paragraph {number}"]
    skill = passage_input_of(parse(lines))
    assert len(skill.parsed.passages) == len(vectors)
    return replace(skill, passage_vectors=np.stack(vectors))


def asking(vector: np.ndarray) -> PassageQuery:
    return PassageQuery(vector, np.empty(0, np.uint64), np.empty(0, np.float32))


def mixed(near: float) -> np.ndarray:
    """A unit vector with this cosine to CLOSE."""
    return np.asarray(near * CLOSE + np.sqrt(1 - near**2) * FAR, np.float32)


def test_mmr_prefers_what_is_new() -> None:
    asked = ((CLOSE + 0.75 * FAR) / 1.25).astype(np.float32)
    skill = page_with([CLOSE, CLOSE, FAR])
    assert select_mmr(asking(asked), skill, replace(DEFAULT_WEIGHTS, mmr_small=2)) == [0, 2]


def test_mmr_stops_below_zero_and_needs_vectors() -> None:
    assert select_mmr(asking(CLOSE), page_with([-CLOSE, -CLOSE])) == []
    assert select_mmr(asking(CLOSE), passage_input_of(parse(["# T", "", "one"]))) == []
    assert select_mmr(query_of("one", dense=False), page_with([CLOSE])) == []


def test_a_large_skill_has_the_larger_budget() -> None:
    weights = replace(DEFAULT_WEIGHTS, mmr_lambda=1.0, mmr_small=2, mmr_large=4, mmr_many=5)
    assert len(select_mmr(asking(CLOSE), page_with([CLOSE] * 5), weights)) == 2
    assert len(select_mmr(asking(CLOSE), page_with([CLOSE] * 6), weights)) == 4


def test_top_k_brings_what_points_to_the_nearest() -> None:
    skill = page_with([mixed(0.1), mixed(0.9), mixed(0.2), mixed(0.8), mixed(0.3)])
    weights = replace(DEFAULT_WEIGHTS, top_k=2)
    assert select_top_k(asking(CLOSE), skill, [], weights) == [1, 3]
    edges = [(0, 1), (1, 2), (2, 4), (4, 3)]
    assert select_top_k(asking(CLOSE), skill, edges, weights) == [0, 1, 3, 4]
    assert select_top_k(asking(CLOSE), passage_input_of(parse(["one"])), edges) == []


def test_the_walk_goes_along_links_and_stops_where_nothing_is_near() -> None:
    skill = page_with([mixed(0.5), mixed(0.9), mixed(0.05), mixed(0.8), mixed(0.7)])
    edges = [(0, 1), (1, 2), (2, 3)]
    assert select_by_graph_walk(asking(CLOSE), skill, edges) == [0, 1]
    assert select_by_graph_walk(asking(CLOSE), skill, []) == [0]
    near = replace(DEFAULT_WEIGHTS, graph_gain=0.0)
    assert select_by_graph_walk(asking(CLOSE), skill, edges, near) == [0, 1, 2, 3]
    assert select_by_graph_walk(asking(CLOSE), passage_input_of(parse([])), edges) == []


def test_the_walk_enters_at_the_first_step_wherever_the_query_points() -> None:
    skill = page_with([mixed(0.9), mixed(0.3), mixed(0.8)])
    passages = [
        replace(passage, role=Role.STEP if passage.index == 1 else Role.CONCEPT)
        for passage in skill.parsed.passages
    ]
    skill = replace(skill, parsed=replace(skill.parsed, passages=tuple(passages)))
    assert select_by_graph_walk(asking(CLOSE), skill, []) == [1]
    assert select_by_graph_walk(asking(CLOSE), skill, [(0, 1)]) == [0, 1]


def test_chunks_cover_every_line_in_windows() -> None:
    lines = ["# T", "", *(f"line {n} of words" for n in range(90)), "", "## B", "", "x " * 400]
    chunks = split_into_chunks(parse(lines))
    weights = DEFAULT_WEIGHTS
    assert len(chunks.passages) > 2
    assert [p.index for p in chunks.passages] == list(range(len(chunks.passages)))
    for passage in chunks.passages:
        text = chunks.text(passage.first_line, passage.last_line)
        assert passage.tokens == count_tokens(text)
        assert passage.tokens <= weights.chunk_tokens or text.count("\n") == 0
    everywhere = get_line_ranges(chunks, range(len(chunks.passages)), context=False)
    assert everywhere == [(1, len(lines))]
    assert chunks.sections[chunks.passages[-1].section].heading_path[-1] == "B"
    assert split_into_chunks(parse(["", ""])).passages == ()


def test_everything_is_everything() -> None:
    skill = passage_input_of(parse(["# T", "", "one", "", "two"]))
    assert select_all(skill) == [0, 1]
