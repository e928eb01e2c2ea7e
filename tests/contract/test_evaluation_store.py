"""What every `EvaluationStore` does. A new implementation adds its opener to `reopen`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from config.errors import NotFoundError
from config.server_settings import ServerSettings
from tasks.broker.redis_connection import connect
from tasks.evaluations.model import EvaluatedPrompt, Evaluation, EvaluationSummary, Measure
from tasks.evaluations.protocol import (
    MAX_EVALUATIONS,
    EvaluationStore,
    forget_prompts,
    forget_skill,
)
from tasks.evaluations.redis import RedisEvaluationStore
from tasks.evaluations.sqlite import SqliteEvaluationStore
from tests.support.samples.reopened import reopening
from tests.support.servers.redis_database import redis_settings

__all__ = ["redis_settings"]

Reopen = Callable[[], EvaluationStore]


@pytest.fixture(params=["sqlite", "redis"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reopen]:
    def open_store() -> EvaluationStore:
        if request.param == "sqlite":
            return SqliteEvaluationStore(tmp_path / "evaluations.db")
        settings: ServerSettings = request.getfixturevalue("redis_settings")
        return RedisEvaluationStore(connect(settings, binary=True), settings)

    with reopening(open_store) as reopened:
        yield reopened


@pytest.fixture
def store(reopen: Reopen) -> EvaluationStore:
    return reopen()


def prompt(prompt_id: str, owner: str | None = None) -> EvaluatedPrompt:
    return EvaluatedPrompt(
        prompt_id,
        f"brenne “{prompt_id}” \ud800",
        needed=("lib:kiln", "lib:glaze"),
        found=("lib:glaze", "lib:kiln"),
        ranks=(2, 1),
        values={"Hit@1": 1.0},
        probability=0.25,
        owner=owner,
        asked=5.0,
    )


def run(evaluation_id: str, made: float = 1.5) -> Evaluation:
    summary = EvaluationSummary(
        *(evaluation_id, "routing", "tâsks.jsonl", made, "0.1.0", 12, 2, ("diffusion",)),
        settings={"choice": {"budget": 4_000}},
        measures={"Hit@1": Measure(0.5, 0.25, 0.75)},
    )
    return Evaluation(summary, (prompt("one"), prompt("two", "ann")))


def test_a_run_is_read_as_it_was_kept(store: EvaluationStore, reopen: Reopen) -> None:
    store.add(run("a"))
    assert store.get("a") == run("a")
    assert reopen().get("a") == run("a")
    assert store.list_summaries() == [run("a").summary]


def test_the_first_run_of_an_id_stays(store: EvaluationStore) -> None:
    store.add(run("a"))
    store.add(Evaluation(replace(run("a").summary, name="other"), ()))
    assert store.get("a") == run("a")


def test_the_newest_runs_are_kept(store: EvaluationStore) -> None:
    for number in range(MAX_EVALUATIONS + 3):
        store.add(run(f"r{number:03d}", made=float(number)))
    found = store.list_summaries()
    assert [one.made for one in found] == [float(n) for n in range(MAX_EVALUATIONS + 2, 2, -1)]
    with pytest.raises(NotFoundError, match="no evaluation 'r000'"):
        store.get("r000")


def test_a_run_is_removed(store: EvaluationStore) -> None:
    store.add(run("a"))
    store.remove("a")
    assert store.list_summaries() == []
    with pytest.raises(NotFoundError):
        store.remove("a")
    with pytest.raises(NotFoundError):
        store.get("a")


def test_a_purged_skill_is_named_no_more(store: EvaluationStore) -> None:
    store.add(run("a"))
    assert forget_skill(store, "lib:kiln") == 2
    assert forget_skill(store, "lib:kiln") == 0
    store.overwrite_deleted()
    assert "lib:kiln" not in repr(store.get("a"))
    assert store.get("a").prompts[0].ranks == (2, 1)


def test_forgotten_prompts_are_those_of_answers(store: EvaluationStore) -> None:
    store.add(run("a"))
    assert forget_prompts(store, lambda one: True) == 1
    assert [one.prompt_id for one in store.get("a").prompts] == ["one"]
    assert store.get("a").summary == run("a").summary


def test_runs_that_do_not_name_a_forgotten_query_are_not_read(store: EvaluationStore) -> None:
    name = 'two“"\\'
    store.add(run("a"))
    store.add(Evaluation(run("b").summary, (prompt("one"), prompt(name, "ann"))))
    read: list[str] = []

    def is_forgotten(one: EvaluatedPrompt) -> bool:
        read.append(one.prompt_id)
        return one.prompt_id == name

    assert forget_prompts(store, is_forgotten, name) == 1
    assert read == [name]
    assert [one.prompt_id for one in store.get("b").prompts] == ["one"]


def test_changes_by_two_processes_are_both_kept(reopen: Reopen) -> None:
    store, other = reopen(), reopen()
    store.add(run("a"))
    meanwhile = threading.Thread(target=forget_skill, args=(other, "lib:kiln"))

    def change(one: EvaluatedPrompt) -> EvaluatedPrompt:
        if not meanwhile.ident:
            meanwhile.start()
            meanwhile.join(1)  # SQLite makes it wait for the end of this change
        return replace(one, task="")

    assert store.change_prompts(change) > 0
    meanwhile.join()
    prompts = store.get("a").prompts
    assert {one.task for one in prompts} == {""}
    assert not any("lib:kiln" in (*one.needed, *one.found) for one in prompts)
