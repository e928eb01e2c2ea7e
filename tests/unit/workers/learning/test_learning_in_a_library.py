"""Training sets and evaluations of a library that has outcomes of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from config.errors import TransientError, UsageError
from graph.protocol import SkillGraph
from graph.records import Adjacency, Link, LinkType, Neighbour
from search.protocol import SearchIndex
from skills.events import QueryAsked, SourceChanged
from skills.outcomes.model import AnsweredQuery, Outcome, OutcomeKind, Reporter
from tasks.outcomes.sqlite import SqliteOutcomeStore
from tasks.policies import Deadline
from tasks.query.context import QueryContext
from tasks.query.pipeline import answer_query, rank_candidates
from tasks.query.process_state.circuit_breaker import CircuitBreakers
from tasks.query.process_state.past_tasks import PastTasks
from tasks.services import Services
from tests.support.samples.library import TOPICS, write_topics
from tests.support.samples.tiny import TinyEncoder, settle, tiny_backend
from tests.unit.graph.test_learned_links import Library
from workers.backend.embedded import EmbeddedBackend
from workers.cli.evaluation.options import find_missing_skills
from workers.evaluation.bundles import evaluate_bundles
from workers.evaluation.learned_links import LearnedGraph
from workers.evaluation.learning_arms import ARMS
from workers.evaluation.runs.evaluate_labels import evaluate_labels
from workers.evaluation.sessions import SessionRunner
from workers.training.encoder.encoder_pairs import EncoderOptions
from workers.training.encoder.mine_pairs import build_encoder_training_set
from workers.training.query_origins import LABELLED
from workers.training.ranker_training import rank_prompt
from workers.training.reranker.training_lists import (
    RerankerOptions,
    TrainingSet,
    build_training_set,
)
from workers.training.training_data import read_trainable

KILN, MAP, BREAD = "crafts:kiln-firing", "crafts:map-projection", "crafts:bread-baking"
PROMPT = "which glaze for stoneware in an electric kiln"


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBackend]:
    base = tmp_path_factory.mktemp("learning")
    root = write_topics(base / "crafts")
    with tiny_backend(base / "home") as backend:
        backend.submit(SourceChanged(source_id="crafts", root=str(root)), "tests")
        settle(backend)
        yield backend


@pytest.fixture
def services(backend: EmbeddedBackend) -> Services:
    """The library's services, with a store of outcomes of the test's own."""
    store = SqliteOutcomeStore(":memory:")
    found = backend.services
    past_tasks = PastTasks(store, found.encoder.get, found.settings.learning)
    return replace(found, outcomes=store, past_tasks=past_tasks)


def report_helped(services: Services, task: str, skill_id: str) -> None:
    services.outcomes.add_answers([AnsweredQuery("q1", "", "", task, 1e9, hit=True)])
    kind, by = OutcomeKind.HELPED, Reporter.PERSON
    services.outcomes.add_outcomes([Outcome("o1", "q1", skill_id, kind, by, "", 1e9)])


def recalled(services: Services, task: str) -> bool:
    context = QueryContext.create(services, QueryAsked(task=task), apply_policy=False)
    return bool(rank_candidates(context).remembered)


def reranker_set(services: Services, *rows: dict[str, Any]) -> TrainingSet:
    options = RerankerOptions("base", ("en",), queries=2, prompts="")
    return build_training_set(services, options, rows, lambda done, total: None)


def row(text: str, skill_id: str, **more: float) -> dict[str, Any]:
    return {"instruction": text, "gt_skill_ids": [skill_id], **more}


def test_a_training_set_does_not_know_the_outcomes_that_it_learns_from(services: Services) -> None:
    rows = [row(PROMPT, MAP), row("a sourdough starter of rye", BREAD)]
    before = reranker_set(services, *rows)
    prompt = rank_prompt(services, PROMPT, [MAP, KILN])
    report_helped(services, PROMPT, MAP)
    assert recalled(services, PROMPT)
    assert reranker_set(services, *rows) == before
    after = rank_prompt(services, PROMPT, [MAP, KILN])
    assert prompt is not None
    assert after is not None
    assert np.array_equal(after.parts, prompt.parts)
    assert np.array_equal(after.needed, prompt.needed)


def test_copies_of_a_prompt_are_those_of_its_row(services: Services) -> None:
    rows = [
        row(PROMPT, KILN, weight=3.0),
        row(PROMPT, BREAD, weight=1.0),
        row(PROMPT, MAP, weight=0.0),
        row("read the tides", "crafts:tide-tables"),
        row("anything", "crafts:not-there"),
    ]
    made = reranker_set(services, *rows)
    held = {held.needed[0] for held in made.held_out}
    expected = {KILN: 3, BREAD: 1, "crafts:tide-tables": 1}
    asked = {one["instruction"] for one in rows}
    lists = [one.positive for one in made.lists if one.query in asked]
    for skill_id, count in expected.items():
        assert lists.count(skill_id) == (0 if skill_id in held else count)
    assert MAP not in lists
    assert MAP not in [one.needed[0] for one in made.held_out if one.origin == LABELLED]
    assert made.notes["tasks"] == 3
    assert made.notes["tasks that need no skill of this library"] == 1
    assert made.notes["tasks left out by their weight"] == 1
    options = EncoderOptions("base", ("en",), pairs=2)
    encoder_set = build_encoder_training_set(services, options, rows, lambda done, total: None)
    pairs = [one.needed[0] for one in encoder_set.pairs if one.origin == LABELLED]
    held = {one.needed[0] for one in encoder_set.held_out}
    for skill_id, count in expected.items():
        assert pairs.count(skill_id) == (0 if skill_id in held else count)
    assert MAP not in pairs


@pytest.mark.parametrize("changed", [{"folds": 100, "fold": 99}, {"pairs": 0, "queries": 0}])
def test_a_training_that_holds_nothing_out_is_refused(
    services: Services, changed: dict[str, Any]
) -> None:
    options = {name: value for name, value in changed.items() if name != "queries"}
    with pytest.raises(UsageError, match=r"0 in the held-out part .*--folds"):
        build_encoder_training_set(
            services, EncoderOptions("base", ("en",), **options), [], lambda done, total: None
        )
    options = {name: value for name, value in changed.items() if name != "pairs"}
    with pytest.raises(UsageError, match=r"0 in the held-out part .*--folds"):
        build_training_set(
            services, RerankerOptions("base", ("en",), **options), [], lambda done, total: None
        )


def test_other_right_skills_are_needed_too(services: Services) -> None:
    task = row(PROMPT, KILN) | {"also": [MAP, "crafts:not-there"]}
    needed, lists = [], []
    for fold in range(5):
        options = RerankerOptions("base", ("en",), queries=2, fold=fold)
        made = build_training_set(services, options, [task], lambda done, total: None)
        needed += [one.needed for one in made.held_out if one.origin == LABELLED]
        lists += [one for one in made.lists if one.query == PROMPT]
    assert needed == [(KILN, MAP)]
    assert [one.positive for one in lists] == [KILN, MAP] * 4
    assert not any({KILN, MAP} & {*one.negatives} for one in lists)


def test_skills_in_both_languages_of_a_model_are_trained_on(tmp_path: Path) -> None:
    encoder = TinyEncoder()
    encoder.languages = frozenset({"en", "zh", "mixed"})
    for name, text in (("loom", "Weave a shawl."), ("kiln", "Fire the kiln well every night 窑炉")):
        folder = tmp_path / "crafts" / name
        folder.mkdir(parents=True)
        content = f"---\nname: {name}\ndescription: {text}\n---\n{text}\n"
        (folder / "SKILL.md").write_text(content, encoding="utf-8")
    with tiny_backend(tmp_path / "home", encoder) as backend:
        backend.submit(SourceChanged(source_id="crafts", root=str(tmp_path / "crafts")), "tests")
        settle(backend)
        found = read_trainable(backend.services, frozenset({"en", "zh"}))
        assert [one.parsed.record.language for one in found] == ["mixed", "en"]
        assert len(read_trainable(backend.services, frozenset({"en"}))) == 1


def test_links_of_an_evaluation_are_learned_anew(tmp_path: Path) -> None:
    library = Library(tmp_path)
    library.publish("a", "b", "c", "d")
    library.link()
    ids = [f"lib:{name}" for name in "abcd"]
    plain = library.graph.get_adjacency(ids, 10)
    assert LearnedGraph(library.graph, None).get_adjacency(ids, 10) == plain
    for number in range(8):
        library.report(number, ("c", "helped"), ("a", "helped"))
        library.report(10 + number, ("a", "helped"), ("b", "wrong_domain"))
    expected = LearnedGraph(library.graph, library.learned)
    assert library.learned is not None
    library.learned.refresh()
    wanted = expected.get_adjacency(ids, 10)
    library.link()
    linked = library.graph.get_adjacency(ids, 10)
    assert linked != plain
    assert wanted == linked
    assert expected.get_adjacency(ids, 10) == linked
    without = LearnedGraph(library.graph, None).get_adjacency(ids, 10)
    for skill_id, adjacency in plain.items():
        assert [one.skill_id for one in without[skill_id].neighbours] == [
            one.skill_id for one in adjacency.neighbours
        ]
        weights = [one.weight for one in without[skill_id].neighbours]
        assert weights == pytest.approx([one.weight for one in adjacency.neighbours])
    library.close()


def test_no_arm_uses_what_the_library_itself_has_learned(
    services: Services, tmp_path: Path
) -> None:
    evidence = "outcomes: helped together in 3 tasks of 1 owner"
    link = Link(KILN, KILN, MAP, LinkType.USED_TOGETHER, 0.5, evidence)
    linked = replace(services, graph=cast(Any, LinkedGraph(services.graph, link)))
    for name in ("without", "memory", "links", "training", "all"):
        arm = ARMS[name](linked, tmp_path)
        assert arm.graph.get_adjacency([KILN], 10)[KILN].neighbours == ()


class LinkedGraph:
    """A catalog in which every skill has the same links."""

    def __init__(self, graph: SkillGraph, *links: Link) -> None:
        self._graph = graph
        self._links = links

    def __getattr__(self, name: str) -> Any:
        return getattr(self._graph, name)

    def get_adjacency(self, skill_ids: Sequence[str], fan_out: int) -> dict[str, Adjacency]:
        """As a catalog with these links."""
        found = tuple(Neighbour(one.target, one.type, True, one.weight) for one in self._links)
        return {skill_id: Adjacency(found, {}) for skill_id in skill_ids}

    def get_links(self, skill_ids: Sequence[str]) -> dict[str, list[Link]]:
        """The links, whatever the skill."""
        return {skill_id: list(self._links) for skill_id in skill_ids}


def test_a_budget_below_the_names_of_what_was_sent_sends_nothing(services: Services) -> None:
    runner = SessionRunner(services)
    session = runner.new_session()
    assert runner.ask(PROMPT, 4000, session)
    assert runner.ask(PROMPT, 1, session) is None
    assert runner.ask(PROMPT, 1) is None
    runner.close()


class ForgettingTasks(PastTasks):
    """Past tasks whose outcomes are forgotten while an evaluation runs."""

    def leave_out(self, query_ids: Collection[str]) -> None:
        super().leave_out(query_ids)
        self._store.forget_outcomes("q1")


def test_labels_that_are_forgotten_meanwhile_are_not_kept(services: Services) -> None:
    report_helped(services, PROMPT, KILN)
    assert [one.prompt_id for one in evaluate_labels(services)] == ["q1"]
    tasks = ForgettingTasks(services.outcomes, services.encoder.get, services.settings.learning)
    assert evaluate_labels(replace(services, past_tasks=tasks)) == []


class IndexWithoutVectors:
    """An index on a server that stopped after the search."""

    def __init__(self, index: SearchIndex) -> None:
        self._index = index

    def __getattr__(self, name: str) -> Any:
        return getattr(self._index, name)

    def get_section_vectors(self, keys: object) -> Any:
        raise TransientError("no answer")


def test_figures_are_not_of_a_library_without_a_server(services: Services) -> None:
    away = replace(
        services,
        circuit_breakers=CircuitBreakers(),
        index=cast(SearchIndex, IndexWithoutVectors(services.index)),
    )
    task = {"task_id": "kiln", "instruction": PROMPT, "gt_skill_ids": [KILN]}
    degraded = answer_query(away, Deadline(30), "q", QueryAsked(task=PROMPT)).bundle.degraded
    assert degraded == ("passages chosen by words only: the search index did not answer",)
    with pytest.raises(TransientError):
        list(evaluate_bundles(away, [task], 4000))


def test_an_evaluation_names_the_task_that_cannot_be_asked(services: Services) -> None:
    limit = services.settings.limits.query_characters
    task = {"task_id": "long one", "instruction": "kiln " * limit, "gt_skill_ids": [KILN]}
    with pytest.raises(UsageError, match=f"long one: .*the limit is {limit}"):
        list(evaluate_bundles(services, [task], 4000))


def test_a_file_about_another_library_is_refused(services: Services) -> None:
    path = Path("tasks.jsonl")
    with pytest.raises(UsageError, match=r"tasks.jsonl: .*such as other:a; it has .* crafts:b"):
        find_missing_skills(path, ["other:b", "other:a"], services)
    assert find_missing_skills(path, [KILN, "other:b", "other:a"], services) == [
        "other:a",
        "other:b",
    ]
    assert find_missing_skills(path, [f"crafts:{name}" for name in TOPICS], services) == []
