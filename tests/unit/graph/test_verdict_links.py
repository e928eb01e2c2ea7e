"""Links from verdicts: a function of the library and the verdicts, apart from scored links."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from graph.links.linker import Linker, is_from_verdict
from graph.local.store import SqliteSkillGraph
from graph.records import Link, LinkType, Mention, Publication
from skills.record import RevisionKey
from tasks.language_model.answer_store import RefinementKind
from tasks.language_model.skill_pairs.protocol import PairVerdict
from tasks.language_model.skill_pairs.sqlite import SqliteSkillPairs
from tasks.refine.linking.verdict_links import WEIGHTS, StoredVerdictLinks

KIND = RefinementKind("links", "model", 1)
ALIKE = {1: 0.8, 2: 0.6}


class Library:
    """A catalog with a linker that knows verdicts."""

    def __init__(self, path: Path) -> None:
        self.graph = SqliteSkillGraph(path / "graph.db", writable=True)
        self.pairs = SqliteSkillPairs(path / "answers.db")
        self.linker = Linker(
            self.graph, verdict_links=StoredVerdictLinks(self.graph, self.pairs, KIND)
        )
        self.runs = 0

    def publish(self, *names: str, content: str = "1", mentions: tuple[Mention, ...] = ()) -> None:
        self.graph.publish(
            [
                Publication(
                    RevisionKey(f"lib:{name}", seq),
                    "lib",
                    name,
                    f"{name}{content}",
                    name,
                    f"What {name} does",
                    body_terms=ALIKE,
                    description_terms={ord(name[0]): 1.0},
                    mentions=mentions,
                )
                for name, seq in zip(names, self.graph.allocate_sequence(len(names)), strict=True)
            ]
        )

    def remove(self, name: str) -> None:
        self.graph.remove([RevisionKey(f"lib:{name}", self.graph.allocate_sequence(1)[0])])

    def save(self, one: str, other: str, kind: LinkType, first: bool = True) -> None:
        """A verdict about the first contents of two skills, of which `one` sorts first."""
        ids = (f"lib:{one}", f"lib:{other}")
        verdict = PairVerdict((f"{one}1", f"{other}1"), ids, kind.value, first, "a, line 3: so")
        self.pairs.save_verdicts(KIND, [verdict])

    def link(self, linker: Linker | None = None, at_once: int = 100) -> None:
        """Link until no skill is marked."""
        for _ in range(50):
            marks = self.graph.list_awaiting_linking(at_once)
            if not marks:
                return
            self.runs += 1
            (linker or self.linker).relink(marks)
        raise AssertionError("skills are marked again and again")

    def links(self) -> set[Link]:
        ids = [entry.skill_id for entry in self.graph.get_entries() if entry.seq]
        return {link for owned in self.graph.get_owned_links(ids).values() for link in owned}

    def verdict_links(self) -> set[tuple[str, str, str, str]]:
        return {
            (one.owner[4:], one.source[4:], one.target[4:], one.type.value)
            for one in self.links()
            if is_from_verdict(one)
        }


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    found = Library(tmp_path)
    yield found
    found.graph.close()
    found.pairs.close()


def test_a_verdict_becomes_a_link_below_the_weight_of_declared_ones(library: Library) -> None:
    library.publish("a", "b", "c")
    library.save("a", "b", LinkType.DEPENDENCY, first=False)
    library.link()
    assert library.verdict_links() == {("b", "b", "a", "dependency")}
    [link] = [one for one in library.links() if is_from_verdict(one)]
    assert link.weight == WEIGHTS[LinkType.DEPENDENCY] < 0.999
    assert link.evidence == "language model model: a, line 3: so"


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("order", ["abcd", "dcba"])
def test_order_of_linking_makes_no_difference(library: Library, kind: LinkType, order: str) -> None:
    library.save("a", "b", kind)
    library.save("b", "c", kind, first=False)
    for name in order:
        library.publish(name)
        library.link(at_once=1)
    one_by_one = library.links()
    library.graph.mark_for_linking([f"lib:{name}" for name in order])
    library.link()
    assert library.links() == one_by_one
    assert len(library.verdict_links()) == 2


def test_scored_links_are_as_without_verdicts(library: Library) -> None:
    library.publish(*"abcd")
    library.link(Linker(library.graph))
    before = library.links()
    library.save("a", "b", LinkType.SEMANTIC)
    library.save("b", "c", LinkType.ALTERNATIVE)
    library.graph.mark_for_linking(["lib:a", "lib:b", "lib:c"])
    library.link()
    assert {one for one in library.links() if not is_from_verdict(one)} == before
    library.publish("b", content="2")
    library.link()
    assert set(library.links()) == before


def test_an_edit_of_either_side_ends_a_verdict_and_its_return_restores_it(
    library: Library,
) -> None:
    library.publish("a", "b")
    library.save("a", "b", LinkType.WORKFLOW)
    library.link()
    assert library.verdict_links() == {("a", "a", "b", "workflow")}
    for name in "ab":
        library.publish(name, content="2")
        library.link()
        assert library.verdict_links() == set()
        library.publish(name, content="1")
        library.link()
        assert library.verdict_links() == {("a", "a", "b", "workflow")}


def test_a_link_comes_back_with_a_removed_skill(library: Library) -> None:
    library.publish("a", "b")
    library.save("a", "b", LinkType.DEPENDENCY)
    library.link()
    library.remove("b")
    library.link()
    assert library.verdict_links() == set()
    library.publish("b")
    library.link()
    assert library.verdict_links() == {("a", "a", "b", "dependency")}


def test_a_heavier_mention_stands_in_the_place_of_a_verdict(library: Library) -> None:
    declared = (Mention("b", "depends", 2, "declared: b"),)
    library.publish("b")
    library.publish("a", mentions=declared)
    library.save("a", "b", LinkType.DEPENDENCY)
    library.link()
    library.graph.mark_for_linking(["lib:b"])
    library.link()
    [link] = [one for one in library.links() if one.type is LinkType.DEPENDENCY]
    assert (link.weight, is_from_verdict(link)) == (1.0, False)
