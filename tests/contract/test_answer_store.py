"""What every `AnswerStore` does. A new implementation adds its opener to `open_at`."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from config.language_model_settings import ModelStage
from config.server_settings import ServerSettings
from tasks.broker.redis_connection import connect
from tasks.language_model.answer_store import (
    AnswerStore,
    RefinementKind,
    StageUsage,
    StoredAnswer,
)
from tasks.language_model.protocol import TokenUsage
from tasks.language_model.redis_answers import RedisAnswerStore
from tasks.language_model.sqlite_answers import SqliteAnswerStore
from tests.support.program.fresh_processes import FRESH
from tests.support.servers.redis_database import redis_settings

__all__ = ["redis_settings"]

Place = Path | ServerSettings
DAY, NEXT_DAY = "2026-11-22", "2026-11-23"
HOUR = 3600.0
"""Seconds of a reservation that does not end while a test runs."""
KIND = RefinementKind("roles", "model:8b", 1)


def open_at(place: Place) -> AnswerStore:
    """The store of a place, from any process."""
    if isinstance(place, ServerSettings):
        return RedisAnswerStore(connect(place), place)
    return SqliteAnswerStore(place)


@pytest.fixture(params=["sqlite", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return tmp_path / "answers.db"
    settings: ServerSettings = request.getfixturevalue("redis_settings")
    return settings


@pytest.fixture
def answers(place: Place) -> Iterator[AnswerStore]:
    opened = open_at(place)
    yield opened
    opened.close()


def spend(answers: AnswerStore, stage: ModelStage, prompt: int, completion: int) -> None:
    reservation = answers.reserve_tokens(DAY, prompt + completion, 0, HOUR)
    assert reservation is not None
    answers.settle(reservation, DAY, stage, TokenUsage(prompt, completion), 1)


# -- answers
def test_the_first_answer_is_kept(answers: AnswerStore) -> None:
    assert answers.get_answer("key") is None
    answers.save_answer("key", "select", "model", StoredAnswer('{"ids": ["ü 中"]}'))
    answers.save_answer("key", "select", "model", StoredAnswer("{}"))
    assert answers.get_answer("key") == StoredAnswer('{"ids": ["ü 中"]}')
    assert answers.get_answer("other") is None


def test_an_invalid_answer_is_kept_with_its_reason(answers: AnswerStore) -> None:
    answers.save_answer("key", "roles", "model", StoredAnswer("", "no id 7: „x“"))
    assert answers.get_answer("key") == StoredAnswer("", "no id 7: „x“")


def test_answers_outlive_their_process_and_are_shared(place: Place, answers: AnswerStore) -> None:
    worker = FRESH.Process(target=save_and_die, args=(place,))
    worker.start()
    worker.join(120)
    assert worker.exitcode == -signal.SIGKILL
    assert answers.get_answer("last words") == StoredAnswer("{}")
    again = open_at(place)
    assert again.get_answer("last words") == StoredAnswer("{}")
    again.close()


def save_and_die(place: Place) -> None:
    open_at(place).save_answer("last words", "select", "model", StoredAnswer("{}"))
    os.kill(os.getpid(), signal.SIGKILL)


# -- tokens
def test_usage_is_counted_by_day_and_stage(answers: AnswerStore) -> None:
    spend(answers, "select", 100, 10)
    spend(answers, "select", 200, 20)
    spend(answers, "roles", 5, 1)
    for _ in range(3):
        answers.count_stored(DAY, "select")
    answers.count_stored(DAY, "judge")
    assert answers.get_usage(DAY) == {
        "judge": StageUsage(stored=1),
        "roles": StageUsage(1, 5, 1),
        "select": StageUsage(2, 300, 30, 3),
    }
    assert answers.get_usage(NEXT_DAY) == {}


def test_used_and_reserved_tokens_stay_within_the_limit(answers: AnswerStore) -> None:
    spend(answers, "select", 50, 10)
    reservation = answers.reserve_tokens(DAY, 30, 100, HOUR)
    assert reservation is not None
    assert answers.reserve_tokens(DAY, 11, 100, HOUR) is None
    assert answers.reserve_tokens(NEXT_DAY, 100, 100, HOUR) is not None
    answers.settle(reservation, DAY, "roles", TokenUsage(4, 1), 1)
    assert answers.reserve_tokens(DAY, 36, 100, HOUR) is None
    assert answers.reserve_tokens(DAY, 35, 100, HOUR) is not None
    assert answers.get_usage(DAY)["roles"] == StageUsage(1, 4, 1)


def test_without_a_limit_all_is_reserved_and_counted(answers: AnswerStore) -> None:
    spend(answers, "select", 10**9, 10**9)
    assert answers.reserve_tokens(DAY, 10**9, 0, HOUR) is not None
    assert answers.get_usage(DAY)["select"].prompt_tokens == 10**9


def test_a_reservation_ends_by_itself(answers: AnswerStore) -> None:
    assert answers.reserve_tokens(DAY, 60, 100, 0.2) is not None
    assert answers.reserve_tokens(DAY, 40, 100, HOUR) is not None
    time.sleep(0.3)
    assert answers.reserve_tokens(DAY, 61, 100, HOUR) is None
    assert answers.reserve_tokens(DAY, 60, 100, HOUR) is not None


def test_what_was_used_counts_after_the_reservation_has_ended(answers: AnswerStore) -> None:
    reservation = answers.reserve_tokens(DAY, 60, 100, 0.1)
    assert reservation is not None
    time.sleep(0.2)
    answers.settle(reservation, DAY, "select", TokenUsage(90, 5), 1)
    assert answers.reserve_tokens(DAY, 6, 100, HOUR) is None
    assert answers.reserve_tokens(DAY, 5, 100, HOUR) is not None


def test_processes_never_reserve_more_than_the_limit(place: Place) -> None:
    reserved = compete(reserve_all, place, ["7"] * 50)
    assert sum(int(tokens) for found in reserved for tokens in found) == 7 * (1000 // 7)


def reserve_all(place: Place, tokens: list[str]) -> list[str]:
    """Reserve; settle every second one with what was reserved."""
    answers = open_at(place)
    held = []
    for number, each in enumerate(tokens):
        reservation = answers.reserve_tokens(DAY, int(each), 1000, HOUR)
        if reservation is not None:
            held.append(each)
            if number % 2:
                answers.settle(reservation, DAY, "select", TokenUsage(int(each) - 1, 1), 1)
    return held


# -- refinements
def test_the_first_refinement_of_a_subject_is_kept(answers: AnswerStore) -> None:
    assert answers.get_refinements(KIND, ["a", "b"]) == {}
    answers.save_refinements(KIND, {"a": {"roles": ["step"]}, "b": {"name": "ü 中"}})
    answers.save_refinements(KIND, {"b": {"name": "late"}, "c": {}})
    answers.save_refinements(KIND, {})
    assert answers.get_refinements(KIND, ["a", "b", "c", "d"]) == {
        "a": {"roles": ["step"]},
        "b": {"name": "ü 中"},
        "c": {},
    }
    assert answers.get_refinements(KIND, []) == {}


def test_refinements_of_other_kinds_are_apart(answers: AnswerStore) -> None:
    others = [
        RefinementKind("judge", "model:8b", 1),
        RefinementKind("roles", "model", 1),
        RefinementKind("roles", "model:8b", 2),
    ]
    for number, kind in enumerate((KIND, *others)):
        answers.save_refinements(kind, {"a": {"number": number}})
    for number, kind in enumerate((KIND, *others)):
        assert answers.get_refinements(kind, ["a"]) == {"a": {"number": number}}


def test_many_refinements_are_read_at_once(answers: AnswerStore) -> None:
    documents = {f"subject {number}": {"number": number} for number in range(1201)}
    answers.save_refinements(KIND, documents)
    assert answers.get_refinements(KIND, list(documents)) == documents


# -- many processes
def compete(work: Any, place: Place, items: list[str]) -> list[list[str]]:
    """What each of four processes got that start at the same time."""
    results = FRESH.SimpleQueue()
    together = FRESH.Barrier(4)
    workers = [
        FRESH.Process(target=run_together, args=(work, place, items, together, results))
        for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    found = [results.get() for _ in workers]
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0] * 4
    return found


def run_together(work: Any, place: Place, items: list[str], together: Any, results: Any) -> None:
    together.wait(120)
    results.put(work(place, items))
    together.wait(120)  # what a process claims is free as soon as it ends


def test_what_is_forgotten_is_gone_with_all_answers(answers: AnswerStore) -> None:
    answers.save_answer("key", "roles", "model", StoredAnswer('{"text": "of a skill"}'))
    answers.save_refinements(KIND, {"gone": {"a": 1}, "kept": {"b": 2}})
    answers.save_refinements(RefinementKind("judge", "other", 2), {"gone": {"c": 3}})
    assert answers.forget(["gone", "unknown"]) == 3
    assert answers.get_answer("key") is None
    assert answers.get_refinements(KIND, ["gone", "kept"]) == {"kept": {"b": 2}}
    assert answers.forget([]) == 0
