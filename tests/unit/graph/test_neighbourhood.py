"""Neighbourhoods: nearest first, by the strongest paths, within limits, of what may be shown."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast

import pytest

from graph import neighbourhood
from graph.neighbourhood import Neighbourhood, find_neighbourhood
from graph.protocol import LinkStore
from graph.records import Adjacency, Link, LinkType, Neighbour

SEMANTIC, CONFLICT = LinkType.SEMANTIC, LinkType.CONFLICT


class Graph:
    """Links in memory, as a `LinkStore` gives them."""

    def __init__(self, *links: tuple[str, str, float], kind: LinkType = SEMANTIC) -> None:
        self.links = [Link(a, a, b, kind, weight, "alike") for a, b, weight in links]

    def get_adjacency(self, skill_ids: Sequence[str], fan_out: int) -> dict[str, Adjacency]:
        rows = {}
        for skill_id in skill_ids:
            ends = [(link, link.target, True) for link in self.links if link.source == skill_id]
            ends += [(link, link.source, False) for link in self.links if link.target == skill_id]
            found = [Neighbour(other, one.type, way, one.weight) for one, other, way in ends]
            rows[skill_id] = Adjacency(tuple(found[:fan_out]), {})
        return rows

    def get_links_among(self, skill_ids: Sequence[str]) -> list[Link]:
        return [one for one in self.links if {one.source, one.target} <= set(skill_ids)]


def find(
    graph: Graph,
    *starts: str,
    hidden: Collection[str] = (),
    types: Collection[LinkType] = tuple(LinkType),
    depth: int = 2,
    limit: int = 10,
) -> Neighbourhood:
    def select(skill_ids: Sequence[str]) -> set[str]:
        return set(skill_ids).difference(hidden)

    return find_neighbourhood(cast(LinkStore, graph), select, starts, types, depth, limit)


CHAIN = Graph(("a", "b", 0.9), ("b", "c", 0.8), ("c", "d", 0.7), ("a", "e", 0.2), ("e", "f", 0.9))


def test_it_reaches_as_far_as_asked_in_both_directions() -> None:
    assert find(CHAIN, "b", depth=1).distances == {"b": 0, "a": 1, "c": 1}
    assert find(CHAIN, "b", depth=2).distances == {"b": 0, "a": 1, "c": 1, "e": 2, "d": 2}


def test_the_nearest_come_first_and_then_those_of_the_strongest_paths() -> None:
    found = find(CHAIN, "a", limit=4)
    assert set(found.distances) == {"a", "b", "e", "c"}
    assert found.skills_cut
    assert not find(CHAIN, "a", limit=5).skills_cut


def test_several_starts_are_all_in_the_middle() -> None:
    found = find(CHAIN, "a", "d", depth=1)
    assert found.distances == {"a": 0, "d": 0, "b": 1, "e": 1, "c": 1}


def test_starts_beyond_the_limit_are_cut() -> None:
    found = find(CHAIN, "a", "b", "c", limit=2)
    assert set(found.distances) == {"a", "b"}
    assert found.skills_cut


def test_only_links_of_the_types_are_followed() -> None:
    graph = Graph(("a", "b", 0.9))
    graph.links += Graph(("a", "c", 0.9), kind=CONFLICT).links
    found = find(graph, "a", types=[CONFLICT])
    assert (set(found.distances), [one.target for one in found.links]) == ({"a", "c"}, ["c"])


@pytest.mark.parametrize("depth", [1, 3])
def test_what_may_not_be_shown_leads_nowhere_and_is_not_counted(depth: int) -> None:
    found = find(CHAIN, "a", hidden=["b"], depth=depth, limit=3)
    assert "b" not in found.distances
    assert not {"c", "d"} & found.distances.keys()
    assert not found.skills_cut
    assert {(one.source, one.target) for one in found.links} <= {("a", "e"), ("e", "f")}


def test_a_start_that_may_not_be_shown_gives_nothing() -> None:
    assert find(CHAIN, "b", hidden=["b"]) == Neighbourhood({}, [])


def test_a_link_of_an_owner_that_may_not_be_shown_does_not_exist() -> None:
    graph = Graph(("a", "b", 0.9))
    graph.links.append(Link("owner", "a", "c", LinkType.WORKFLOW, 1.0, "first a, then c"))
    assert set(find(graph, "a").distances) == {"a", "b", "c"}
    assert set(find(graph, "a", hidden=["owner"]).distances) == {"a", "b"}


def test_links_that_hold_it_together_are_kept_before_heavier_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(neighbourhood, "MAX_LINKS", 2)
    graph = Graph(("a", "b", 0.3), ("a", "c", 0.2), ("b", "c", 0.9))
    found = find(graph, "a", depth=1)
    assert found.links_cut
    assert [(one.source, one.target) for one in found.links] == [("a", "b"), ("a", "c")]
