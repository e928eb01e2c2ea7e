"""Links are a function of the library: any history of it ends in the same links."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from graph.links.link_rules import (
    DEFAULT_LINK_SETTINGS,
    LinkSettings,
    ResolvedNames,
    build_links,
    resolve_mention,
    select_top_links,
)
from graph.links.linker import Linker
from graph.links.similarity_block import Block, Member
from graph.links.similarity_index import SimilarityIndex
from graph.local.store import SqliteSkillGraph
from graph.records import Link, LinkFeatures, LinkType, Mention, Publication
from skills.batches import batches
from skills.record import RevisionKey
from tests.support.samples.similarity_link import similarity_link

SMALL = LinkSettings(max_alternatives=2, max_semantic=2, semantic_body_cosine=0.3)

NewGraph = Callable[[Path], SqliteSkillGraph]


@pytest.fixture(scope="module")
def new_graph(tmp_path_factory: pytest.TempPathFactory) -> NewGraph:
    """Makes a graph of a copy of an empty file: to make the tables takes as long as a test."""
    empty = tmp_path_factory.mktemp("empty") / "library.db"
    SqliteSkillGraph(empty, writable=True).close()

    def make(path: Path) -> SqliteSkillGraph:
        shutil.copyfile(empty, path)
        return SqliteSkillGraph(path, writable=True)

    return make


def unit(terms: Mapping[int, float]) -> dict[int, float]:
    norm = math.sqrt(sum(weight * weight for weight in terms.values()))
    return {term: weight / norm for term, weight in terms.items()} if norm else {}


def facts(
    path: str,
    *mentions: Mention,
    body: Mapping[int, float] | None = None,
    described: Mapping[int, float] | None = None,
    source: str = "lib",
    name: str = "",
) -> LinkFeatures:
    return LinkFeatures(
        f"{source}:{path}",
        source,
        path,
        name or path,
        unit(body or {}),
        unit(described or {}),
        mentions,
    )


def mention(name: str, kind: str = "related", position: int = 0) -> Mention:
    return Mention(name, kind, 3, f"text about {name}", position)


def owned(
    one: LinkFeatures,
    library: Mapping[str, LinkFeatures],
    resolve: ResolvedNames,
    chosen: LinkSettings = DEFAULT_LINK_SETTINGS,
) -> list[Link]:
    """What a skill owns by the rules, from every pair of the library."""
    others = [other for other in library.values() if other.skill_id != one.skill_id]
    scored = [similarity_link(one, other, chosen) for other in others]
    return build_links(one, [link for link in scored if link], resolve, chosen)


def pairs(links: Sequence[Link], kind: LinkType) -> list[tuple[str, str]]:
    return [(link.source, link.target) for link in links if link.type is kind]


# -- the rules


def test_terms_are_compared_to_the_last_bit() -> None:
    one = facts("a", body={1: 1.0}, described={1 << 60: 1.0})
    other = facts("b", body={1: 1.0}, described={(1 << 60) + 1: 1.0})
    for left, right in ((one, other), (other, one)):
        _, _, described, _ = Block.of([Member(left)]).find(Member(right), 0.1)
        assert described.tolist() == [0.0]


def leaning(cosine_with_first: float) -> dict[int, float]:
    """A unit vector of this cosine with {1: 1.0}."""
    return {1: cosine_with_first, 2: math.sqrt(max(0.0, 1 - cosine_with_first**2))}


@pytest.mark.parametrize(
    ("body", "description", "names", "expected"),
    [
        (0.1, 0.85, ("x", "x"), (LinkType.ALTERNATIVE, 0.85)),
        (0.76, 0.1, ("x", "x"), (LinkType.ALTERNATIVE, 0.76)),
        (0.1, 0.85, ("x", "y"), None),
        (0.8, 0.85, ("x", "y"), (LinkType.ALTERNATIVE, 0.85)),
        (0.95, 0.85, ("ledger-1-2", "ledger-1-3"), (LinkType.ALTERNATIVE, 0.95)),
        (0.95, 0.95, ("ledger-reader", "ledger-writer"), None),
        (1.0000001, 0.85, ("x", "x"), (LinkType.ALTERNATIVE, 1.0)),
        (0.5, 0.59, ("x", "y"), (LinkType.SEMANTIC, 0.5)),
        (0.95, 0.1, ("x", "y"), (LinkType.SEMANTIC, 0.95)),
        (0.5, 0.59, ("x", "x"), None),
        (0.5, 0.61, ("x", "y"), None),
        (0.09, 0.0, ("x", "y"), None),
    ],
)
def test_pair_link(
    body: float, description: float, names: tuple[str, str], expected: tuple[LinkType, float] | None
) -> None:
    one = LinkFeatures("lib:1", "lib", "1", names[0], {1: 1.0}, {1: 1.0}, ())
    other = LinkFeatures("lib:2", "lib", "2", names[1], leaning(body), leaning(description), ())
    kept = similarity_link(one, other)
    back = similarity_link(other, one)
    turned = back and replace(back, owner=one.skill_id, source=one.skill_id, target=other.skill_id)
    assert kept == turned
    assert (kept and kept.type) == (expected and expected[0])
    if kept and expected:
        assert kept.weight == pytest.approx(expected[1], abs=1e-4)


def test_scored_links_are_the_best_k_with_ties_by_id() -> None:
    owner = facts("m", body={1: 1, 2: 1})
    pool = {
        f"lib:{path}": facts(path, body=body)
        for path, body in {
            "d": {1: 1},
            "b": {2: 1},
            "c": {1: 1},
            "a": {1: 1, 3: 2},
            "z": {1: 3, 2: 2},
        }.items()
    } | {"lib:m": owner}
    kept = owned(owner, pool, ResolvedNames({}), LinkSettings(max_semantic=3))
    assert pairs(kept, LinkType.SEMANTIC) == [
        ("lib:m", "lib:b"),
        ("lib:m", "lib:c"),
        ("lib:m", "lib:z"),
    ]


def test_named_links_and_their_direction() -> None:
    owner = facts(
        "a",
        mention("b", "depends"),
        mention("b", "quoted"),
        mention("c", "quoted"),
        mention("d", "conflicts"),
        mention("missing", "related"),
        mention("a", "related"),
    )
    kept = build_links(owner, [], ResolvedNames({name: [f"lib:{name}"] for name in "abcd"}))
    assert pairs(kept, LinkType.DEPENDENCY) == [("lib:a", "lib:b"), ("lib:a", "lib:c")]
    assert pairs(kept, LinkType.CONFLICT) == [("lib:a", "lib:d")]
    (declared,) = [link for link in kept if link.target == "lib:b"]
    assert declared.weight == 1.0
    assert declared.evidence == "depends, line 3: text about b"


def test_one_link_where_several_mentions_give_it() -> None:
    lines = {"quoted": 2, "file": 9, "related": 5}
    mentions = [Mention("b", kind, line, "text") for kind, line in lines.items()]
    mentions += [Mention("b_", "related", 7, "text"), Mention("b", "order", 4, "text", 102)]
    mentions += [Mention("a", "order", line, "text", at) for line, at in ((3, 101), (8, 201))]
    mentions += [Mention("b", "order", 6, "text", 202)]
    resolve = ResolvedNames({"a": ["lib:a"], "b": ["lib:b"]})
    expected = build_links(facts("w", *mentions), [], resolve)
    assert [(one.target, one.type, one.evidence) for one in expected] == [
        ("lib:b", LinkType.WORKFLOW, "order, line 4: text"),
        ("lib:b", LinkType.DEPENDENCY, "related, line 5: text"),
    ]
    for turn in range(len(mentions)):
        turned = [*mentions[turn:], *mentions[:turn]]
        assert build_links(facts("w", *turned), [], resolve) == expected
        assert build_links(facts("w", *reversed(turned)), [], resolve) == expected


def test_workflow_follows_the_order_within_a_sequence() -> None:
    owner = facts(
        "w",
        mention("a", "order", 101),
        mention("missing", "order", 102),
        mention("b", "order", 103),
        mention("b", "order", 104),
        mention("c", "order", 201),
        mention("a", "order", 202),
    )
    kept = build_links(owner, [], ResolvedNames({name: [f"lib:{name}"] for name in "abc"}))
    assert pairs(kept, LinkType.WORKFLOW) == [("lib:a", "lib:b"), ("lib:c", "lib:a")]
    assert {link.owner for link in kept} == {"lib:w"}


def test_shared_names_resolve_to_the_nearest_path_then_the_lowest_id() -> None:
    owner = facts("team/one/a")
    named = mention("x")
    found = {"x": ["lib:other/x", "lib:team/one/w", "lib:team/one/x", "lib:team/two/x"]}
    assert resolve_mention(owner, named, ResolvedNames(found)) == "lib:team/one/w"
    assert resolve_mention(owner, named, ResolvedNames({"x": ["lib:a/x", "lib:b/x"]})) == "lib:a/x"
    flat = ResolvedNames({"x": ["lib:acme__x", "lib:zeta__x"]})
    assert resolve_mention(facts("zeta__a"), named, flat) == "lib:zeta__x"


@given(
    owner=st.text("ab/_", max_size=5),
    paths=st.sets(st.text("ab/_", max_size=5), min_size=1, max_size=8),
)
def test_the_nearest_path_shares_most_folders_then_characters(owner: str, paths: set[str]) -> None:
    def shared(one: Sequence[str], two: Sequence[str]) -> int:
        pairs = enumerate(zip(one, two, strict=False))
        return next((n for n, (a, b) in pairs if a != b), min(len(one), len(two)))

    def nearness(path: str) -> tuple[int, int, str]:
        return (-shared(owner.split("/"), path.split("/")), -shared(owner, path), path)

    names = ResolvedNames({"x": sorted(f"lib:{path}" for path in paths)})
    expected = f"lib:{min(paths, key=nearness)}"
    assert resolve_mention(facts(owner), mention("x"), names) == expected


def test_a_name_of_thousands_of_skills_is_resolved_with_few_comparisons() -> None:
    class Counted(str):
        compared = 0

        def __lt__(self, other: str) -> bool:
            Counted.compared += 1
            return str.__lt__(self, other)

    same = [Counted(f"lib:{number:05}/x") for number in range(10_000)]
    names = ResolvedNames({"x": same})
    assert resolve_mention(facts("07777/a"), mention("x"), names) == "lib:07777/x"
    assert 0 < Counted.compared < 100


def test_only_declared_names_reach_another_source() -> None:
    owner = facts("a")
    found = ResolvedNames({}, ["elsewhere:x"])
    assert resolve_mention(owner, mention("elsewhere:x", "depends"), found) == "elsewhere:x"
    assert resolve_mention(owner, mention("elsewhere:x", "related"), found) is None
    assert resolve_mention(owner, mention("plugin:b"), ResolvedNames({"b": ["lib:b"]})) == "lib:b"


# -- the driver

WEIGHTS = st.sampled_from([1.0, 2.0, 3.0])
VECTORS = st.dictionaries(st.integers(0, 6), WEIGHTS, max_size=4)
PATHS = [f"{folder}{name}" for folder in ("", "x/") for name in "abcdef"]
NAMES = st.sampled_from(["one", "two", "three"])
MENTIONS = st.lists(
    st.builds(
        mention,
        st.one_of(NAMES, st.sampled_from([f"lib:{path}" for path in PATHS])),
        st.sampled_from(["related", "depends", "conflicts", "order"]),
        st.integers(0, 3),
    ),
    max_size=3,
)
Skill = tuple[str, dict[int, float], dict[int, float], list[Mention]]
SKILLS = st.tuples(NAMES, VECTORS, VECTORS, MENTIONS)
STEPS = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from(PATHS), SKILLS),
    st.tuples(st.just("remove"), st.sampled_from(PATHS), st.none()),
    st.tuples(st.just("fail"), st.sampled_from(PATHS), st.none()),
    st.tuples(st.just("relink"), st.integers(1, 4), st.none()),
    st.tuples(st.just("late"), st.integers(1, 4), st.none()),
    st.tuples(st.just("batches"), st.integers(1, 4), st.none()),
)


def publication(path: str, seq: int, skill: Skill, source: str = "lib") -> Publication:
    name, body, described, mentions = skill
    return Publication(
        RevisionKey(f"{source}:{path}", seq),
        source,
        path,
        "hash",
        name,
        "",
        mentions=tuple(mentions),
        body_terms=unit(body),
        description_terms=unit(described),
    )


def finish(graph: SqliteSkillGraph, linker: Linker) -> None:
    for _ in range(100):
        marks = graph.list_awaiting_linking(3)
        if not marks:
            return
        linker.relink(marks)
    raise AssertionError("marks never end")


class _StoppedError(Exception):
    pass


def test_reading_the_library_goes_on_where_it_was_stopped(
    new_graph: NewGraph, tmp_path: Path
) -> None:
    """A process that starts reads all skills before it links the first one."""
    graph = new_graph(tmp_path / "graph.db")
    graph.publish([publication(f"s{n}", 1, (f"s{n}", {}, {}, [])) for n in range(1_100)])
    linker = Linker(graph)
    runs = []
    for _ in range(50):
        batches: list[int] = []

        def stop_at_the_third_batch(read: list[int] = batches) -> None:
            if len(read) == 2:
                raise _StoppedError
            read.append(1)

        with suppress(_StoppedError):
            linker.relink([("lib:s7", 0)], before_batch=stop_at_the_third_batch)
        runs.append(len(batches))
        if runs[-1] < 2:
            break
    assert runs[0] == 2
    assert sum(runs) >= 1_100 // 250
    assert linker.find_alike("lib:s7", 5) == []
    assert sum(block.live for block in linker._index._blocks) == 1_100
    graph.close()


def all_links(graph: SqliteSkillGraph) -> set[Link]:
    every = graph.get_links([entry.skill_id for entry in graph.get_entries()])
    return {link for links in every.values() for link in links}


class _Interrupted:
    """A graph in which something happens between the reads and the write of a run."""

    def __init__(self, graph: SqliteSkillGraph, step: Callable[[], None]) -> None:
        self._graph = graph
        self._step = step

    def __getattr__(self, name: str) -> object:
        return getattr(self._graph, name)

    def replace_links(
        self, links: Mapping[str, Sequence[Link]], linked: Sequence[tuple[str, int]]
    ) -> None:
        self._step()
        self._graph.replace_links(links, linked)


class History:
    """Applies drawn steps to a graph and remembers what the library is now."""

    def __init__(self, graph: SqliteSkillGraph) -> None:
        self.graph = graph
        self.linker = Linker(graph, SMALL)
        self.now: dict[str, Skill] = {}

    def apply(self, steps: Sequence[tuple[str, Any, Skill | None]]) -> None:
        for place, (what, argument, skill) in enumerate(steps):
            if what == "late":
                marks = self.graph.list_awaiting_linking(argument)
                rest = steps[place + 1 : place + 2]
                racing: Any = _Interrupted(self.graph, partial(self.apply, rest))
                Linker(racing, SMALL).relink(marks)
            elif what == "batches":
                self._relink_in_batches(argument, steps[place + 1 : place + 2])
            else:
                self._do(what, argument, skill)

    def _relink_in_batches(
        self, size: int, between: Sequence[tuple[str, Any, Skill | None]]
    ) -> None:
        """Links all marked skills; a step happens after each batch."""
        marks = self.graph.list_awaiting_linking(100)
        pending = {skill_id for skill_id, _ in marks}
        for some in batches(marks, size):
            self.linker.relink(some, pending=pending)
            self.apply(between)

    def _do(self, what: str, argument: Any, skill: Skill | None) -> None:
        if what == "relink":
            self.linker.relink(self.graph.list_awaiting_linking(argument))
            return
        (seq,) = self.graph.allocate_sequence(1)
        path = str(argument)
        if skill is not None:
            self.graph.publish([publication(path, seq, skill)])
            self.now[path] = skill
        elif what == "remove":
            self.graph.remove([RevisionKey(f"lib:{path}", seq)])
            self.now.pop(path, None)
        else:
            self.graph.record_failures([(RevisionKey(f"lib:{path}", seq), "lib", path, "bad")])
            self.now.pop(path, None)


@settings(deadline=None, max_examples=80)
@given(steps=st.lists(STEPS, max_size=30))
def test_any_history_gives_the_links_of_the_library(
    new_graph: NewGraph, steps: list[tuple[str, Any, Skill | None]]
) -> None:
    with TemporaryDirectory() as folder:
        graph = new_graph(Path(folder) / "history.db")
        fresh = new_graph(Path(folder) / "fresh.db")
        try:
            history = History(graph)
            history.apply(steps)
            finish(graph, history.linker)
            fresh.publish([publication(path, 1, skill) for path, skill in history.now.items()])
            known = fresh.get_link_features([f"lib:{path}" for path in history.now])
            resolve: dict[str, list[str]] = {}
            for skill_id, one in sorted(known.items()):
                resolve.setdefault(one.name, []).append(skill_id)
            names = ResolvedNames(resolve, known)
            expected = {link for one in known.values() for link in owned(one, known, names, SMALL)}
            assert all_links(graph) == expected
            Linker(fresh, SMALL).relink(fresh.list_awaiting_linking(100))
            assert all_links(fresh) == expected
        finally:
            graph.close()
            fresh.close()


SOURCES = st.sampled_from(["lib", "vault", "annex"])
MOVES = st.lists(st.tuples(SOURCES, st.sampled_from(PATHS), st.none() | SKILLS), max_size=30)


@settings(deadline=None, max_examples=40)
@given(moves=MOVES, at_once=st.integers(1, 5))
def test_hidden_sources_take_no_place_in_the_links_of_others(
    new_graph: NewGraph, moves: list[tuple[str, str, Skill | None]], at_once: int
) -> None:
    """However a library came about, the links that a reader sees are those of one without the
    sources that it does not see."""
    groups = {"vault": ("finance",), "annex": ("audit", "finance")}
    visible = {"": {"lib"}, "finance": {"lib", "vault", "annex"}, "audit": {"lib", "annex"}}

    def replay(graph: SqliteSkillGraph, seen: set[str]) -> set[Link]:
        linker = Linker(graph, SMALL)
        for source, group in groups.items():
            graph.set_source_groups(source, group)
        for place, (source, path, skill) in enumerate(moves):
            (seq,) = graph.allocate_sequence(1)
            if source not in seen:
                continue
            if skill is None:
                graph.remove([RevisionKey(f"{source}:{path}", seq)])
            else:
                graph.publish([publication(path, seq, skill, source)])
            if place % at_once == 0:
                linker.relink(graph.list_awaiting_linking(at_once))
        finish(graph, linker)
        return all_links(graph)

    with TemporaryDirectory() as folder:
        found = {}
        for name, seen in visible.items():
            graph = new_graph(Path(folder) / f"{name}.db")
            found[name] = replay(graph, seen)
            graph.close()
    for name, seen in visible.items():
        kept = {
            link
            for link in found["finance"]
            if all(one.partition(":")[0] in seen for one in (link.owner, *link.ends))
        }
        assert kept == found[name], name


@settings(deadline=None, max_examples=30)
@given(skills=st.lists(SKILLS, min_size=1, max_size=12), most=st.integers(1, 4))
@example(skills=[("one", {0: 1.0}, {0: 1.0}, [])] * 8, most=2)
def test_the_index_leaves_no_skill_out(new_graph: NewGraph, skills: list[Skill], most: int) -> None:
    chosen = LinkSettings(
        max_alternatives=most,
        max_semantic=most,
        semantic_body_cosine=0.5,
        semantic_max_description_cosine=0.8,
    )
    with TemporaryDirectory() as folder:
        graph = new_graph(Path(folder) / "pool.db")
        graph.publish([publication(f"s{n}", 1, skill) for n, skill in enumerate(skills)])
        pool = SimilarityIndex(chosen)
        pool.refresh(graph)
        known = graph.get_link_features([f"lib:s{n}" for n in range(len(skills))])
        graph.close()
    for one in known.values():
        found = pool.score(one)
        every = [
            similarity_link(one, other, chosen) for other in known.values() if other is not one
        ]
        expected = {link.target: link for link in every if link}
        assert found.links_with(known) == expected
        best = found.best()
        assert select_top_links(best, chosen) == select_top_links(expected.values(), chosen)
        assert len(best) <= 2 * most  # not every copy that ties with the last


def test_evidence_follows_though_the_weight_stays(tmp_path: Path) -> None:
    described = {1: 1.0, 2: 1.0}
    skills: dict[str, Skill] = {
        "a": ("one", {1: 1.0, 3: 2.0}, described, []),
        "b": ("one", {1: 1.0, 4: 1.0}, described, []),
        "c": ("one", {1: 1.0, 5: 3.0}, described, []),
    }
    edited = {**skills, "a": ("one", {1: 1.0, 4: 2.0, 5: 1.0}, described, [])}

    def linked(name: str, *libraries: dict[str, Skill]) -> set[Link]:
        graph = SqliteSkillGraph(tmp_path / name, writable=True)
        linker = Linker(graph, SMALL)
        known: dict[str, Skill] = {}
        for library in libraries:
            for path, skill in library.items():
                if known.get(path) != skill:
                    [seq] = graph.allocate_sequence(1)
                    graph.publish([publication(path, seq, skill)])
                    known[path] = skill
            finish(graph, linker)
        found = all_links(graph)
        graph.close()
        return found

    assert linked("history", skills, edited) == linked("fresh", edited)
