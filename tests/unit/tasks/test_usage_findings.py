"""The roll-up as a task, groups of like tasks, and unanswered queries."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import TransientError
from config.settings import Settings
from skills.outcomes.model import SECONDS_PER_DAY, AnsweredQuery, AnsweredSkill, to_day
from tasks.coordination.local import LocalCoordinator
from tasks.evaluations.model import EvaluatedPrompt, Evaluation, EvaluationSummary
from tasks.evaluations.open import open_evaluations
from tasks.outcomes.protocol import TaskVectors, quantise_vector
from tasks.outcomes.sqlite import SqliteOutcomeStore
from tasks.outcomes.usage.roll_up import LOCK, needs_roll_up, roll_up
from tasks.outcomes.usage.task_groups import group_tasks
from tasks.outcomes.usage.unanswered import find_unanswered
from tasks.outcomes.usage.window import read_usage
from tasks.policies import ROLL_UP, Deadline, DeadlineExceededError

MODEL = "multilingual-e5-small-skills:test"


@pytest.fixture
def store() -> Iterator[SqliteOutcomeStore]:
    opened = SqliteOutcomeStore(":memory:")
    yield opened
    opened.close()


def ask(query_id: str, days_ago: float = 0.0, task: str = "", owner: str = "") -> AnsweredQuery:
    at = time.time() - days_ago * SECONDS_PER_DAY
    return AnsweredQuery(query_id, owner, "", task, at, hit=False)


# -- the task


@pytest.fixture
def make_services(store: SqliteOutcomeStore, tmp_path: Path) -> Callable[..., Any]:
    """Returns a function that makes the services of a new process."""

    def make(**learning: Any) -> Any:
        return SimpleNamespace(
            outcomes=store,
            coordinator=LocalCoordinator(),
            settings=Settings.model_validate({"learning": learning, "home": tmp_path}),
            stopping=threading.Event(),
        )

    return make


def run(services: Any) -> dict[str, object]:
    return roll_up(services, Deadline(ROLL_UP.time_limit))


def test_the_task_is_due_at_intervals(
    store: SqliteOutcomeStore, make_services: Callable[..., Any]
) -> None:
    services = make_services(roll_up_seconds=1_000)
    assert needs_roll_up(services)  # of a new process, to prune
    assert not needs_roll_up(services)
    store.add_answers([ask("q1")])
    assert not needs_roll_up(services)
    services = make_services(roll_up_seconds=1e-9)
    assert needs_roll_up(services)
    assert needs_roll_up(services)
    run(services)
    assert needs_roll_up(services)  # once a day, to prune
    assert not needs_roll_up(services)


def test_old_queries_are_pruned_once_they_are_counted(
    store: SqliteOutcomeStore, make_services: Callable[..., Any]
) -> None:
    store.add_answers([ask("old", 70), ask("older", 75), ask("new", 3)])
    services = make_services(days=60)
    report = run(services)
    assert (report["days"], report["pruned_queries"]) == (3, 2)
    assert list(store.get_answers(["old", "older", "new"])) == ["new"]
    assert run(services) == {"days": 0, "pruned_queries": 0}
    today = to_day(time.time())
    window = read_usage(store, today - 200, today)
    assert sum(one.groups["", ""].totals["queries"] for one in window.days) == 3


def test_kept_evaluations_lose_the_texts_of_old_queries(make_services: Callable[..., Any]) -> None:
    services = make_services(days=60)
    asked = {"old": 70.0, "new": 3.0}
    prompts = [
        EvaluatedPrompt(name, name, (), (), (), {}, owner="", asked=ask(name, days).answered)
        for name, days in asked.items()
    ]
    prompts.append(EvaluatedPrompt("of a file", "x", (), (), (), {}))
    summary = EvaluationSummary("run", "outcomes", "labelled prompts", 1.0, "0", 3, len(prompts))
    with ExitStack() as stack:
        evaluations = open_evaluations(services.settings, stack)
        evaluations.add(Evaluation(summary, tuple(prompts)))
        assert run(services)["forgotten_prompts"] == 1
        kept = [one.prompt_id for one in evaluations.get("run").prompts]
    assert kept == ["new", "of a file"]


def test_one_process_rolls_up_at_a_time(
    store: SqliteOutcomeStore, make_services: Callable[..., Any]
) -> None:
    services = make_services()
    store.add_answers([ask("q1")])
    with services.coordinator.try_lock(LOCK):
        assert "skipped" in run(services)
    assert store.list_changed_days()


def test_a_task_that_takes_too_long_keeps_the_days_that_are_done(
    store: SqliteOutcomeStore, make_services: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add_answers([ask("q1", 2), ask("q2", 1)])
    services = make_services()
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    deadline = Deadline(10)

    def pass_time() -> None:
        now[0] += 6

    services.coordinator = SimpleNamespace(
        yield_to_queries=pass_time,
        try_lock=LocalCoordinator().try_lock,
        claim_if_due=lambda name, seconds: False,
    )
    with pytest.raises(DeadlineExceededError):
        roll_up(services, deadline)
    assert len(store.list_changed_days()) == 1


def test_a_process_that_stops_leaves_the_rest(
    store: SqliteOutcomeStore, make_services: Callable[..., Any]
) -> None:
    store.add_answers([ask("q1", 2), ask("q2", 1)])
    services = make_services()
    services.stopping.set()
    with pytest.raises(TransientError, match="stopping"):
        run(services)
    assert len(store.list_changed_days()) == 2


# -- similar tasks

ALIKE = [
    "rotate the zfs snapshots of the warehouse",
    "delete old zfs snapshots",
    "rotate zfs snapshots every week",
    "draw a gantt chart of the harvest",
    "gantt chart for the vineyard harvest",
    "translate the manual to Frisian",
    "把发票整理成表格",
    "请把这些发票整理成一张表格",
]


def test_tasks_of_the_same_words_are_grouped() -> None:
    groups = group_tasks(ALIKE)
    assert sorted(map(sorted, groups)) == [[0, 1, 2], [3, 4], [5], [6, 7]]
    assert len(groups[0]) == 3


@given(st.permutations(range(len(ALIKE))))
@settings(deadline=None, max_examples=20)
def test_groups_do_not_depend_on_the_order(order: list[int]) -> None:
    groups = group_tasks([ALIKE[place] for place in order])
    found = {frozenset(order[place] for place in group) for group in groups}
    assert found == {frozenset(group) for group in group_tasks(ALIKE)}


@given(st.lists(st.text(max_size=20), max_size=12))
@settings(deadline=None, max_examples=60)
def test_every_task_is_in_one_group(tasks: list[str]) -> None:
    places = [place for group in group_tasks(tasks) for place in group]
    assert sorted(places) == list(range(len(tasks)))


def test_vectors_group_tasks_of_other_words_and_part_those_of_another_meaning() -> None:
    tasks = ["archive the mail", "keep old letters", "rotate the snapshots", "rotate snapshots"]
    vectors = np.zeros((4, 3), dtype=np.float32)
    vectors[0] = vectors[1] = [1, 0, 0]
    vectors[2], vectors[3] = [0, 1, 0], [0, -1, 0]
    assert sorted(map(sorted, group_tasks(tasks, vectors))) == [[0, 1], [2], [3]]
    vectors[3] = 0  # unknown: then words decide
    assert sorted(map(sorted, group_tasks(tasks, vectors))) == [[0, 1], [2, 3]]


def test_no_task_makes_no_group() -> None:
    assert group_tasks([]) == []


# -- unanswered queries


def find(store: SqliteOutcomeStore, owner: str | None = None, model: str = MODEL) -> Any:
    today = to_day(time.time())
    days = read_usage(store, today - 30, today).days
    return find_unanswered(store, days, owner, model)


def test_unanswered_queries_are_grouped_by_similarity(store: SqliteOutcomeStore) -> None:
    answers = [ask(f"q{n}", n % 3, task, "ann" if n % 2 else "") for n, task in enumerate(ALIKE)]
    answered = replace(ask("hit", 0, ALIKE[0]), hit=True, skills=(AnsweredSkill("lib:a", 1, 1),))
    random.Random(3).shuffle(answers)
    store.add_answers([*answers, answered])
    found = find(store)
    assert (found.total, found.grouped) == (8, 8)
    first = found.groups[0]
    assert (first.queries, first.no_hits) == (3, 3)
    assert {one.task for one in first.examples} == set(ALIKE[:3])
    assert first.last - first.first == 2
    assert sum(group.queries for group in found.groups) == 8
    assert find(store) == found


def test_an_owner_sees_its_own(store: SqliteOutcomeStore) -> None:
    store.add_answers([ask("a", 0, ALIKE[0], "ann"), ask("b", 0, ALIKE[1], "bob")])
    found = find(store, "ann")
    assert (found.total, found.grouped) == (1, 1)
    assert found.groups[0].examples[0].owner == "ann"


def test_vectors_of_the_default_encoder_count(store: SqliteOutcomeStore) -> None:
    answers = [ask("a", 0, "archive the mail"), ask("b", 0, "keep old letters")]
    unit = quantise_vector(np.array([0.6, 0.8], dtype=np.float32))
    for model in (MODEL, "another"):
        store.add_answers(answers, TaskVectors(model, dict.fromkeys(("a", "b"), unit)))
    assert len(find(store).groups) == 1
    assert len(find(store, model="another").groups) == 2


def test_texts_of_forgotten_queries_are_gone(
    store: SqliteOutcomeStore, make_services: Callable[..., Any]
) -> None:
    services = make_services(days=10)
    store.add_answers([ask("old", 20, ALIKE[0]), ask("new", 1, ALIKE[1])])
    run(services)
    found = find(store)
    assert (found.total, found.grouped) == (2, 1)
