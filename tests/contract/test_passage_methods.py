"""Properties of every passage selection method: valid indexes, in document order, for any skill."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph.links.passage_links import link_passages
from skills.passages import (
    PassageInput,
    PassageQuery,
    estimate_needs,
    get_line_ranges,
    select_all,
    select_by_graph_walk,
    select_mmr,
    select_top_k,
    split_into_chunks,
)
from tests.support.samples.passages import LINES, parse, passage_input_of, query_of

Method = Callable[[PassageQuery, PassageInput], list[int]]


def edges_of(skill: PassageInput) -> list[tuple[int, int]]:
    links = link_passages(skill.parsed, skill.passage_vectors)
    return [(link.source, link.target) for link in links]


METHODS: dict[str, Method] = {
    "f": lambda query, skill: estimate_needs(query, skill).select_enough(0.2),
    "mmr": select_mmr,
    "topk": lambda query, skill: select_top_k(query, skill, edges_of(skill)),
    "graph": lambda query, skill: select_by_graph_walk(query, skill, edges_of(skill)),
    "chunks": select_mmr,
    "full": lambda _, skill: select_all(skill),
}


@pytest.mark.parametrize("name", METHODS)
@settings(deadline=None, max_examples=60)
@given(LINES, st.booleans(), st.sampled_from(["oven bake", "", "水", "see the first step " * 9]))
def test_valid_indexes_in_document_order(
    name: str, lines: list[str], dense: bool, asked: str
) -> None:
    parsed = parse(lines)
    skill = passage_input_of(
        split_into_chunks(parsed) if name == "chunks" else parsed, passages=True
    )
    query = query_of(asked, dense=dense)
    chosen = METHODS[name](query, skill)
    assert chosen == sorted(set(chosen))
    assert all(0 <= index < len(skill.parsed.passages) for index in chosen)
    assert METHODS[name](query, skill) == chosen
    if skill.parsed.passages and name in ("f", "full"):
        assert chosen
    spans = get_line_ranges(skill.parsed, chosen, context=name != "chunks")
    assert all(1 <= first <= last <= len(lines) for first, last in spans)
    assert all(before[1] < after[0] for before, after in pairwise(spans))
