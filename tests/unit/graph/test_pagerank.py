"""Diffusion: pushing hop by hop never errs by more than it says, and agrees with the exact."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from config.settings import DiffusionSettings
from graph.pagerank import (
    DiffusionStep,
    TransitionRow,
    direction_weights,
    personalised_pagerank,
    transition_row,
)
from graph.records import Adjacency, LinkType, Neighbour
from tests.support.samples.exact_pagerank import exact_pagerank

DEPENDENCY, SEMANTIC = LinkType.DEPENDENCY, LinkType.SEMANTIC
Edge = tuple[str, str, LinkType, float]
DEFAULTS = DiffusionSettings(restart=0.2, max_nodes=600)
NODES = [f"s{n}" for n in range(12)]
EDGES = st.lists(
    st.tuples(
        st.sampled_from(NODES),
        st.sampled_from(NODES),
        st.sampled_from(list(LinkType)),
        st.sampled_from([0.25, 0.5, 1.0]),
    ).filter(lambda edge: edge[0] != edge[1]),
    max_size=40,
)
SEEDS = st.dictionaries(st.sampled_from(NODES), st.floats(0.01, 1.0), min_size=1, max_size=5)


def rows_of(edges: Sequence[Edge], fan_out: int = 1000) -> dict[str, Adjacency]:
    """Whole rows, or cut ones with their whole totals."""
    neighbours: dict[str, list[Neighbour]] = {node: [] for node in NODES}
    for source, target, kind, weight in edges:
        neighbours[source].append(Neighbour(target, kind, True, weight))
        neighbours[target].append(Neighbour(source, kind, False, weight))
    rows = {}
    for node, found in neighbours.items():
        totals: defaultdict[tuple[LinkType, bool], float] = defaultdict(float)
        for one in found:
            totals[one.type, one.forward] += one.weight
        found.sort(key=lambda n: -n.weight)
        rows[node] = Adjacency(tuple(found[:fan_out]), dict(totals))
    return rows


def row_of(row: Adjacency) -> TransitionRow:
    return transition_row(row, direction_weights(DEFAULTS))


def reader(
    rows: Mapping[str, Adjacency], asked: list[list[str]]
) -> Callable[[Sequence[str]], Mapping[str, Adjacency]]:
    def read(skill_ids: Sequence[str]) -> Mapping[str, Adjacency]:
        asked.append(list(skill_ids))
        return {skill_id: rows[skill_id] for skill_id in skill_ids if skill_id in rows}

    return read


def distance(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    return sum(abs(one.get(k, 0.0) - other.get(k, 0.0)) for k in {*one, *other})


@settings(deadline=None, max_examples=60)
@given(EDGES, SEEDS)
def test_exact_is_pagerank(edges: list[Edge], seeds: dict[str, float]) -> None:
    chosen = DiffusionSettings()
    rows = rows_of(edges)
    graph = nx.MultiDiGraph()
    graph.add_nodes_from(NODES)
    for node, row in rows.items():
        for other, share in row_of(row).shares:
            graph.add_edge(node, other, weight=share)
    expected = nx.pagerank(
        graph, alpha=1 - chosen.restart, personalization=seeds, tol=1e-13, max_iter=1000
    )
    assert distance(exact_pagerank(seeds, rows, chosen), expected) < 1e-9


@settings(deadline=None, max_examples=100)
@given(EDGES, SEEDS, st.integers(1, 6), st.integers(1, 12), st.integers(1, 6))
def test_the_error_is_never_above_the_bound(
    edges: list[Edge], seeds: dict[str, float], hops: int, nodes: int, fan_out: int
) -> None:
    chosen = DiffusionSettings(max_hops=hops, max_nodes=nodes)
    asked: list[list[str]] = []
    found = personalised_pagerank(seeds, reader(rows_of(edges, fan_out), asked), chosen)
    true = exact_pagerank(seeds, rows_of(edges), chosen)
    assert distance(found.scores, true) <= found.residual_bound + 1e-9
    assert all(score <= true[skill_id] + 1e-9 for skill_id, score in found.scores.items())
    assert sum(found.scores.values()) == pytest.approx(1 - found.residual_bound)
    assert len(asked) == found.hops <= hops
    assert sum(map(len, asked)) == found.nodes_read <= nodes
    assert len({skill_id for batch in asked for skill_id in batch}) == found.nodes_read


@settings(deadline=None, max_examples=60)
@given(EDGES, SEEDS)
def test_reading_everything_converges(edges: list[Edge], seeds: dict[str, float]) -> None:
    chosen = DiffusionSettings(tolerance=1e-6, max_hops=100)
    found = personalised_pagerank(seeds, reader(rows_of(edges), []), chosen)
    assert found.residual_bound <= 1e-6
    assert distance(found.scores, exact_pagerank(seeds, rows_of(edges), chosen)) <= 1e-6


def test_mass_reaches_what_a_seed_depends_on() -> None:
    rows = rows_of([("s0", "s1", DEPENDENCY, 1.0), ("s0", "s2", SEMANTIC, 0.4)])
    scores = personalised_pagerank({"s0": 1.0}, reader(rows, []), DEFAULTS).scores
    assert scores["s0"] > scores["s1"] > scores["s2"] > 0


def test_reverse_follows_the_type() -> None:
    rows = rows_of([("s1", "s0", DEPENDENCY, 1.0), ("s2", "s0", LinkType.WORKFLOW, 1.0)])
    shares = dict(row_of(rows["s0"]).shares)
    assert shares["s1"] / shares["s2"] == pytest.approx((0.4 * 1.0) / (0.2 * 0.5))
    assert sum(shares.values()) == pytest.approx(1.0)


def test_conflicts_carry_nothing() -> None:
    rows = rows_of([("s0", "s1", LinkType.CONFLICT, 1.0)])
    assert personalised_pagerank({"s0": 2.0}, reader(rows, []), DEFAULTS).scores == {"s0": 1.0}


def test_a_cut_row_leaks_into_the_residual() -> None:
    edges: list[Edge] = [("s0", f"s{n}", SEMANTIC, 0.5) for n in range(1, 5)]
    whole = row_of(rows_of(edges)["s0"])
    cut = row_of(rows_of(edges, 1)["s0"])
    assert cut.shares == whole.shares[:1]
    assert cut.leak == pytest.approx(0.75)
    assert whole.leak == 0.0
    lost = Adjacency((), rows_of(edges)["s0"].totals)
    assert row_of(lost) == ([], 1.0)
    found = personalised_pagerank({"s0": 1.0}, reader(rows_of(edges, 1), []), DEFAULTS)
    assert found.residual_bound > 0.5


def test_seeds_unknown_to_the_graph_keep_their_mass() -> None:
    rows = rows_of([("s0", "s1", DEPENDENCY, 1.0)])
    seeds = {"elsewhere": 3.0, "s0": 1.0}
    chosen = DiffusionSettings(tolerance=1e-9, max_hops=50)
    found = personalised_pagerank(seeds, reader(rows, []), chosen)
    assert distance(found.scores, exact_pagerank(seeds, rows, chosen)) < 1e-8
    assert found.scores["elsewhere"] > 0.3


@settings(deadline=None, max_examples=80)
@given(EDGES, SEEDS, st.integers(1, 12), st.integers(1, 6))
def test_inflow_is_the_score_less_the_restart(
    edges: list[Edge], seeds: dict[str, float], nodes: int, fan_out: int
) -> None:
    """In the exact solution, a seed's restart share is restart * p over the mass that is kept;
    what a skill got over links is the rest, and exactly nothing where no link leads to it."""
    chosen = DiffusionSettings(max_nodes=nodes)
    linked = {"isolated": 0.5} | seeds
    found = personalised_pagerank(linked, reader(rows_of(edges, fan_out), []), chosen)
    own = {name: found.scores[name] - found.inflow.get(name, 0.0) for name in linked}
    unit = own["isolated"] / linked["isolated"]
    assert own == pytest.approx({name: unit * weight for name, weight in linked.items()})
    assert found.inflow == pytest.approx(
        {n: score - own.get(n, 0.0) for n, score in found.scores.items() if n in found.inflow}
    )
    ends = {end for source, target, _, _ in edges for end in (source, target)}
    assert found.inflow.keys() <= ends


def test_no_seeds_no_scores() -> None:
    asked: list[list[str]] = []
    found = personalised_pagerank({"s0": 0.0}, reader({}, asked), DEFAULTS)
    assert (found.scores, found.residual_bound, found.hops, asked) == ({}, 0.0, 0, [])
    assert exact_pagerank({}, {}, DEFAULTS) == {}


@pytest.mark.parametrize(
    "wrong",
    [
        {"restart": 1.0},
        {"tolerance": 0.0},
        {"semantic_weight": -1.0},
        {"semantic_weight": math.inf},
    ],
)
def test_settings_are_checked(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        DiffusionSettings.model_validate(wrong)


def test_its_steps_lead_from_the_seeds_to_the_scores() -> None:
    edges = [
        ("s0", "s1", LinkType.SEMANTIC, 0.5),
        ("s1", "s2", LinkType.DEPENDENCY, 1.0),
        ("s2", "s3", LinkType.WORKFLOW, 0.7),
    ]
    steps: list[DiffusionStep] = []
    seeds = {"s0": 3.0, "s2": 1.0}
    found = personalised_pagerank(seeds, reader(rows_of(edges), []), DEFAULTS, steps.append)
    assert found == personalised_pagerank(seeds, reader(rows_of(edges), []), DEFAULTS)
    first, last = steps[0], steps[-1]
    assert add(first) == pytest.approx({"s0": 0.75, "s2": 0.25})
    assert last.settled == pytest.approx(found.scores)
    for step in steps:
        assert sum(add(step).values()) == pytest.approx(1.0)
    waiting = [sum(step.moving.values()) for step in steps]
    assert waiting == sorted(waiting, reverse=True)


def add(step: DiffusionStep) -> dict[str, float]:
    names = {*step.settled, *step.moving}
    return {name: step.settled.get(name, 0.0) + step.moving.get(name, 0.0) for name in names}
