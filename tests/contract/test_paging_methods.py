"""What every method of paging must hold: valid indexes, in document order, whatever the skill."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph.links.passage_links import passage_links
from skills.passages import (
    DEFAULT_WEIGHTS,
    PageInput,
    PageQuery,
    choose,
    chunked,
    everything,
    greedy_graph,
    lines_of,
    mmr,
    score_passages,
    top_k,
)
from tests.support.paging import page_of, parse, query_of

Method = Callable[[PageQuery, PageInput], list[int]]


def edges_of(page: PageInput) -> list[tuple[int, int]]:
    links = passage_links(page.parsed, page.passage_vectors)
    return [(link.source, link.target) for link in links]


METHODS: dict[str, Method] = {
    "f": lambda query, page: choose(score_passages(query, page, DEFAULT_WEIGHTS), page, 4.0),
    "mmr": mmr,
    "topk": lambda query, page: top_k(query, page, edges_of(page)),
    "graph": lambda query, page: greedy_graph(query, page, edges_of(page)),
    "chunks": mmr,
    "full": lambda _, page: everything(page),
}

LINES = st.lists(
    st.sampled_from(
        [
            "",
            "# A",
            "## Step 1: heat",
            "### C",
            "plain oven words",
            "- an item",
            "  - nested",
            "1. bake, then see Step 1",
            "```",
            "Lead in:",
            "| a | b |",
            "|---|---|",
            "x = 1",
            "用水清洗",
            "if cold, heat",
        ]
    ),
    max_size=40,
)


@pytest.mark.parametrize("name", METHODS)
@settings(deadline=None, max_examples=60)
@given(LINES, st.booleans(), st.sampled_from(["oven bake", "", "水", "see the first step " * 9]))
def test_valid_indexes_in_document_order(
    name: str, lines: list[str], dense: bool, asked: str
) -> None:
    parsed = parse(lines)
    page = page_of(chunked(parsed) if name == "chunks" else parsed, passages=True)
    query = query_of(asked, dense=dense)
    chosen = METHODS[name](query, page)
    assert chosen == sorted(set(chosen))
    assert all(0 <= index < len(page.parsed.passages) for index in chosen)
    assert METHODS[name](query, page) == chosen
    if page.parsed.passages and name in ("f", "full"):
        assert chosen
    spans = lines_of(page.parsed, chosen, context=name != "chunks")
    assert all(1 <= first <= last <= len(lines) for first, last in spans)
    assert all(before[1] < after[0] for before, after in pairwise(spans))
