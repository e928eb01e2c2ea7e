"""What every `SkillGraph` must do about the groups of sources, and the catalog that readers see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from config.inbound_settings import EVERYONE
from graph.entry_filter import EntryFilter
from graph.protocol import SkillGraph
from graph.records import (
    Adjacency,
    DismissedLink,
    Link,
    LinkType,
    Neighbour,
    SkillState,
    Source,
    SourceAccess,
)
from graph.visible_graph import VisibleGraph, find_visible_sources
from skills.access import ANYONE, UNRESTRICTED, Reader
from tests.contract.test_skill_graph import key, publication, walked
from tests.support.samples.reopened import reopening_neo4j_graph, reopening_sqlite_graph

Reopen = Callable[[], SkillGraph]
SOURCES = ("a", "b", "b-2", "c")
VISIBLE = frozenset({"a", "b-2"})
FAN_OUT = 3


def make_link(
    source: str, target: str, weight: float, kind: LinkType = LinkType.SEMANTIC, owner: str = ""
) -> Link:
    return Link(owner or source, source, target, kind, weight, "because")


LINKS = [
    make_link("a:0", "b:0", 0.9),
    make_link("a:0", "b:1", 0.8),
    make_link("a:0", "b:2", 0.7),
    make_link("a:0", "a:1", 0.5),
    make_link("a:0", "a:2", 0.25),
    make_link("a:0", "b-2:0", 0.125, LinkType.CONFLICT),
    make_link("b:0", "a:0", 1.0, LinkType.DEPENDENCY),
    make_link("a:1", "a:2", 0.75, LinkType.WORKFLOW, owner="b:0"),
]


class SourceGroupsContract:
    """The suite; `reopen` is a fixture that opens the same library again."""

    @pytest.fixture
    def graph(self, reopen: Reopen) -> SkillGraph:
        """Five skills of each source, and links across them."""
        graph = reopen()
        for source_id in SOURCES:
            graph.save_source(Source(source_id, "directory", f"/srv/{source_id}"))
        graph.publish(
            [publication(str(n), n + 1, source=name) for name in SOURCES for n in range(5)]
        )
        owned: dict[str, list[Link]] = {}
        for link in LINKS:
            owned.setdefault(link.owner, []).append(link)
        graph.replace_links(owned, graph.list_awaiting_linking(100))
        return graph

    @pytest.fixture
    def visible(self, graph: SkillGraph) -> VisibleGraph:
        return VisibleGraph(graph, VISIBLE)

    # -- groups
    def test_groups_are_kept_apart_from_sources(self, graph: SkillGraph, reopen: Reopen) -> None:
        assert graph.read_access() == SourceAccess(graph.list_sources(), {})
        graph.set_source_groups("c", ["finance", "audit"])
        graph.set_source_groups("later", ["hr"])
        graph.save_source(Source("c", "directory", "/srv/c", last_success=5.0))
        graph.remove([key(str(n), 9, "c") for n in range(5)])
        graph.delete_source("c")
        expected = SourceAccess(
            [Source(name, "directory", f"/srv/{name}") for name in SOURCES[:3]],
            {"c": ("finance", "audit"), "later": ("hr",)},
        )
        assert graph.read_access() == expected
        graph.close()
        graph = reopen()
        assert graph.read_access() == expected
        graph.set_source_groups("c", ["hr"])
        graph.set_source_groups("later", [])
        graph.set_source_groups("never", [])
        assert graph.read_access().groups == {"c": ("hr",)}

    def test_a_change_of_groups_moves_the_epoch(self, graph: SkillGraph) -> None:
        epoch = graph.get_epoch()
        graph.set_source_groups("c", ["finance"])
        assert graph.get_epoch() > epoch
        changes = graph.get_changes_since(epoch)
        assert (changes.epoch, changes.pointers) == (graph.get_epoch(), {})

    # -- what a reader sees
    def test_skills_of_other_sources_are_not_there(
        self, graph: SkillGraph, visible: VisibleGraph
    ) -> None:
        every = [entry.skill_id for entry in graph.get_entries()]
        seen = [one for one in every if one.partition(":")[0] in VISIBLE]
        assert [one.source_id for one in visible.list_sources()] == ["a", "b-2"]
        assert [one.skill_id for one in visible.get_entries()] == seen
        assert [one.skill_id for one in visible.get_entries(every)] == seen
        assert sorted(one.skill_id for one in visible.get_safety_records(every)) == seen
        counted = visible.count_states_by_source(["a", "b"])
        assert counted["a"][SkillState.PUBLISHED] == 5
        assert counted["b"] == {}
        assert {one.source_id for one in visible.count_entries()} == set(VISIBLE)
        assert sorted(visible.get_changes_since(0).pointers) == seen
        assert visible.get_changes_since(0).relinked == {"a:0", "a:1", "a:2", "b-2:0"}

    def test_pages_pass_over_hidden_skills(self, visible: VisibleGraph) -> None:
        for selection, expected in (
            (EntryFilter(), [f"{name}:{n}" for name in ("a", "b-2") for n in range(5)]),
            (EntryFilter(name="1"), ["a:1", "b-2:1"]),
            (EntryFilter("b-2"), [f"b-2:{n}" for n in range(5)]),
            (EntryFilter("b"), []),
        ):
            for limit in (1, 2, 3, 4, 7, 50):
                found = walked(visible, selection, limit)
                # By skill_id: `b-2:` sorts before `b:`.
                assert found == sorted(expected)

    def test_a_hidden_neighbour_takes_no_place_and_no_mass(self, visible: VisibleGraph) -> None:
        row = visible.get_adjacency(["a:0", "b:0", "a:9"], FAN_OUT)
        assert row["a:0"] == Adjacency(
            (
                Neighbour("b-2:0", LinkType.CONFLICT, True, 0.125),
                Neighbour("a:1", LinkType.SEMANTIC, True, 0.5),
                Neighbour("a:2", LinkType.SEMANTIC, True, 0.25),
            ),
            {(LinkType.CONFLICT, True): 0.125, (LinkType.SEMANTIC, True): 0.75},
        )
        assert row["b:0"] == row["a:9"] == Adjacency((), {})
        assert len(visible.get_adjacency(["a:0"], 1)["a:0"].neighbours) == 1

    def test_both_rows_of_a_skill_are_cached(
        self, graph: SkillGraph, visible: VisibleGraph
    ) -> None:
        for _ in range(2):
            assert len(graph.get_adjacency(["a:0"], FAN_OUT)["a:0"].neighbours) == FAN_OUT
            assert len(visible.get_adjacency(["a:0"], 9)["a:0"].neighbours) == 3
        kept = [link for link in LINKS if link.owner == "a:0" and link.target != "a:1"]
        graph.replace_links({"a:0": kept}, [])
        graph.get_changes_since(0)
        assert len(visible.get_adjacency(["a:0"], 9)["a:0"].neighbours) == 2

    def test_links_of_hidden_owners_and_ends_are_not_there(
        self, graph: SkillGraph, visible: VisibleGraph
    ) -> None:
        seen = {link for link in LINKS if "b:" not in f"{link.owner} {link.source} {link.target}"}
        assert set(visible.get_links(["a:0", "b:0"])["a:0"]) == {
            link for link in seen if "a:0" in link.ends
        }
        assert visible.get_links(["b:0"]) == {"b:0": []}
        assert set(visible.get_links_among(["a:0", "a:1", "a:2", "b:0", "b-2:0"])) == seen
        for target in ("b:0", "a:1"):
            graph.dismiss_link(DismissedLink("a:0", target, LinkType.SEMANTIC, "wrong", 1.0))
        assert [one.target for one in visible.list_dismissed_links()] == ["a:1"]


class TestSqliteSourceGroups(SourceGroupsContract):
    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Iterator[Reopen]:
        with reopening_sqlite_graph(tmp_path) as reopened:
            yield reopened


class TestNeo4jSourceGroups(SourceGroupsContract):
    @pytest.fixture
    def reopen(self, neo4j_url: str, neo4j_password_file: Path | None) -> Iterator[Reopen]:
        with reopening_neo4j_graph(neo4j_url, neo4j_password_file) as reopened:
            yield reopened


@pytest.mark.parametrize(
    ("reader", "default_groups", "expected"),
    [
        (UNRESTRICTED, [], None),
        (ANYONE, [EVERYONE], {"plain", "open"}),
        (ANYONE, [], {"open"}),
        (ANYONE, ["staff"], {"open"}),
        (Reader.of(["staff"]), ["staff"], {"plain", "open"}),
        (Reader.of(["finance"]), [EVERYONE], {"plain", "open", "ledgers"}),
        (Reader.of(["finance", "hr"]), [EVERYONE], None),
        (Reader.of(["finance", "hr"]), [], {"open", "ledgers"}),
    ],
)
def test_a_reader_sees_the_sources_that_share_a_group(
    reader: Reader, default_groups: list[str], expected: set[str] | None
) -> None:
    sources = [Source(name, "directory", f"/{name}") for name in ("plain", "open", "ledgers")]
    groups = {"open": (EVERYONE,), "ledgers": ("audit", "finance"), "removed": ("hr",)}
    found = find_visible_sources(SourceAccess(sources, groups), reader, default_groups)
    assert found == expected
