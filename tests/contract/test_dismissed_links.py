"""What every `SkillGraph` must do about links that a person dismissed, links from use, and which
outcomes links were learned from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from graph.protocol import SkillGraph
from graph.records import DismissedLink, Link, LinkKey, LinkType
from tests.contract.test_skill_graph import (
    key,
    link,
    link_all,
    marked,
    mention,
    publication,
)
from tests.support.samples.reopened import reopening_neo4j_graph, reopening_sqlite_graph

Reopen = Callable[[], SkillGraph]
UNDIRECTED = [kind for kind in LinkType if not kind.is_directed]
DIRECTED = [kind for kind in LinkType if kind.is_directed]


def dismissed(source: str, target: str, kind: LinkType, reason: str = "wrong") -> DismissedLink:
    return DismissedLink(f"lib:{source}", f"lib:{target}", kind, reason, 12.5)


def dismissal(source: str, target: str, kind: LinkType) -> LinkKey:
    return LinkKey(f"lib:{source}", f"lib:{target}", kind)


def all_links(graph: SkillGraph) -> set[Link]:
    ids = [entry.skill_id for entry in graph.get_entries()]
    return {one for owned in graph.get_owned_links(ids).values() for one in owned}


class DismissedLinksContract:
    """The suite; `reopen` is a fixture that opens the same library again."""

    @pytest.fixture
    def graph(self, reopen: Reopen) -> SkillGraph:
        graph = reopen()
        graph.publish([publication(path, seq) for seq, path in enumerate("abcd", 1)])
        return graph

    @pytest.mark.parametrize("kind", UNDIRECTED)
    @pytest.mark.parametrize("ends", ["ab", "ba"])
    def test_a_link_without_direction_goes_both_ways(
        self, graph: SkillGraph, kind: LinkType, ends: str
    ) -> None:
        kept = link("a", "c", kind)
        link_all(graph, link("a", "b", kind), link("b", "a", kind), kept)
        graph.dismiss_link(dismissed(ends[0], ends[1], kind))
        assert all_links(graph) == {kept}
        assert graph.list_dismissed_links() == [dismissed("a", "b", kind)]

    @pytest.mark.parametrize("kind", DIRECTED)
    def test_a_directed_link_goes_one_way(self, graph: SkillGraph, kind: LinkType) -> None:
        back = link("b", "a", kind)
        link_all(graph, link("a", "b", kind), link("a", "b", kind, owner="c"), back)
        graph.dismiss_link(dismissed("a", "b", kind))
        assert all_links(graph) == {back}
        assert graph.list_dismissed_links() == [dismissed("a", "b", kind)]

    def test_links_of_another_type_stay(self, graph: SkillGraph) -> None:
        kept = link("a", "b", LinkType.SEMANTIC)
        link_all(graph, kept, link("a", "b", LinkType.ALTERNATIVE))
        graph.dismiss_link(dismissed("a", "b", LinkType.ALTERNATIVE))
        assert all_links(graph) == {kept}

    def test_it_is_left_out_when_links_are_written(self, graph: SkillGraph) -> None:
        graph.dismiss_link(dismissed("a", "b", LinkType.USED_TOGETHER))
        kept = link("a", "c", LinkType.USED_TOGETHER)
        link_all(
            graph,
            link("b", "a", LinkType.USED_TOGETHER),
            link("a", "b", LinkType.USED_TOGETHER),
            kept,
        )
        assert all_links(graph) == {kept}
        assert marked(graph) == set()

    def test_owners_and_ends_are_marked_and_their_rows_change(self, graph: SkillGraph) -> None:
        link_all(graph, link("a", "b", LinkType.WORKFLOW, owner="c"))
        adjacency = graph.get_adjacency(["lib:a"], 32)["lib:a"]
        assert [one.skill_id for one in adjacency.neighbours] == ["lib:b"]
        epoch = graph.get_changes_since(0).epoch
        graph.dismiss_link(dismissed("a", "b", LinkType.WORKFLOW))
        assert marked(graph) == {"lib:a", "lib:b", "lib:c"}
        assert graph.get_changes_since(epoch).relinked >= {"lib:a", "lib:b"}
        assert graph.get_adjacency(["lib:a"], 32)["lib:a"].neighbours == ()

    def test_a_second_dismissal_replaces_the_reason(self, graph: SkillGraph) -> None:
        graph.dismiss_link(dismissed("a", "b", LinkType.CONFLICT, "first"))
        graph.dismiss_link(dismissed("b", "a", LinkType.CONFLICT, "second, 理由"))
        assert graph.list_dismissed_links() == [
            dismissed("a", "b", LinkType.CONFLICT, "second, 理由")
        ]

    def test_it_survives_the_removal_of_a_skill_and_reopening(
        self, graph: SkillGraph, reopen: Reopen
    ) -> None:
        graph.dismiss_link(dismissed("a", "b", LinkType.CONFLICT))
        graph.remove([key("b", 10)])
        graph.prune_removed(-1)
        graph.close()
        again = reopen()
        assert again.list_dismissed_links() == [dismissed("a", "b", LinkType.CONFLICT)]
        again.publish([publication("b", 20)])
        link_all(again, link("a", "b", LinkType.CONFLICT))
        assert all_links(again) == set()

    def test_a_restored_link_may_be_written_again(self, graph: SkillGraph) -> None:
        graph.dismiss_link(dismissed("a", "b", LinkType.CONFLICT))
        link_all(graph)
        assert graph.restore_link(dismissal("b", "a", LinkType.CONFLICT)) is True
        assert marked(graph) == {"lib:a", "lib:b"}
        assert graph.list_dismissed_links() == []
        written = link("a", "b", LinkType.CONFLICT)
        link_all(graph, written)
        assert all_links(graph) == {written}
        assert graph.restore_link(dismissal("a", "b", LinkType.CONFLICT)) is False

    def test_restoring_marks_the_skills_that_mention_an_end(self, graph: SkillGraph) -> None:
        graph.publish([publication("order", 10, mentions=(mention("a"), mention("b")))])
        graph.dismiss_link(dismissed("a", "b", LinkType.WORKFLOW))
        link_all(graph)
        graph.restore_link(dismissal("a", "b", LinkType.WORKFLOW))
        assert marked(graph) == {"lib:a", "lib:b", "lib:order"}

    def test_a_skill_that_is_not_in_the_catalog_can_be_an_end(self, graph: SkillGraph) -> None:
        link_all(graph)
        graph.dismiss_link(dismissed("a", "gone", LinkType.CONFLICT))
        assert marked(graph) == {"lib:a"}
        assert graph.restore_link(dismissal("a", "gone", LinkType.CONFLICT)) is True

    def test_many_are_listed_by_source_target_and_type(self, graph: SkillGraph) -> None:
        for ends, kind in (("bc", "semantic"), ("ab", "workflow"), ("ab", "conflict")):
            graph.dismiss_link(dismissed(ends[0], ends[1], LinkType(kind)))
        assert [
            (one.source, one.target, one.type.value) for one in graph.list_dismissed_links()
        ] == [
            ("lib:a", "lib:b", "conflict"),
            ("lib:a", "lib:b", "workflow"),
            ("lib:b", "lib:c", "semantic"),
        ]

    def test_conflicts_are_not_cut_at_a_fan_out(self, graph: SkillGraph) -> None:
        link_all(
            graph,
            link("a", "b", LinkType.DEPENDENCY, 1.0),
            link("a", "c", LinkType.CONFLICT, 0.9),
            link("a", "d", LinkType.USED_TOGETHER, 0.95),
        )
        row = graph.get_adjacency(["lib:a"], 2)["lib:a"]
        assert [(one.skill_id, one.type) for one in row.neighbours] == [
            ("lib:c", LinkType.CONFLICT),
            ("lib:b", LinkType.DEPENDENCY),
        ]
        assert row.totals[LinkType.USED_TOGETHER, True] == 0.95


class TestSqliteDismissedLinks(DismissedLinksContract):
    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Iterator[Reopen]:
        with reopening_sqlite_graph(tmp_path) as reopened:
            yield reopened


class TestNeo4jDismissedLinks(DismissedLinksContract):
    @pytest.fixture
    def reopen(self, neo4j_url: str, neo4j_password_file: Path | None) -> Iterator[Reopen]:
        with reopening_neo4j_graph(neo4j_url, neo4j_password_file) as reopened:
            yield reopened
