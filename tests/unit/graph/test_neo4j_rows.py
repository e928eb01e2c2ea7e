"""Rows of Cypher statements, of which a concurrent deletion may leave any value null."""

from __future__ import annotations

import pytest

from graph.neo4j.rows import (
    adjacency_from_row,
    entries_from_rows,
    features_from_rows,
    links_from_rows,
)
from graph.records import Link, LinkType
from graph.row_codec import pack_vector

COMPLETE = ["lib:a", "lib:a", "lib:b", "SEMANTIC", 0.5, "alike"]


@pytest.mark.parametrize("place", range(len(COMPLETE)))
def test_a_link_with_a_null_is_left_out(place: int) -> None:
    deleted: list[object] = [*COMPLETE]
    deleted[place] = None
    [link] = links_from_rows([deleted, COMPLETE])
    assert link == Link("lib:a", "lib:a", "lib:b", LinkType.SEMANTIC, 0.5, "alike")


@pytest.mark.parametrize("place", range(4))
def test_a_neighbour_with_a_null_is_left_out(place: int) -> None:
    deleted: list[object] = ["lib:c", "SEMANTIC", True, 0.5]
    deleted[place] = None
    row = adjacency_from_row([deleted, ["lib:b", "WORKFLOW", False, 0.25]], [])
    assert [one.skill_id for one in row.neighbours] == ["lib:b"]


@pytest.mark.parametrize("nulls", [(None, True, 0.5), ("SEMANTIC", None, 0.5)])
def test_a_total_with_a_null_is_left_out(nulls: tuple[object, ...]) -> None:
    row = adjacency_from_row([], [nulls, ("SEMANTIC", True, 1.5)])
    assert row.totals == {(LinkType.SEMANTIC, True): 1.5}


@pytest.mark.parametrize("place", range(7))
def test_features_with_a_null_are_left_out(place: int) -> None:
    """But for the name, which may be empty."""
    vector = pack_vector({1: 0.5})
    stored: list[object] = ["lib:a", "lib", "a", "a", vector, vector, "[]"]
    deleted: list[object] = ["lib:b", *stored[1:]]
    deleted[place] = None
    expected = ["lib:a", "lib:b"] if place == 3 else ["lib:a"]
    assert list(features_from_rows([stored, deleted])) == expected


def test_a_deleted_entry_is_left_out() -> None:
    entry: list[object] = ["lib:a", "lib", "a", "published", *[None] * 18]
    deleted = [None] * len(entry)
    assert [one.skill_id for one in entries_from_rows([deleted, entry])] == ["lib:a"]
