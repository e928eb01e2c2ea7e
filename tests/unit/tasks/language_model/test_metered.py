"""Answers that are kept, claims, and the budget of a day, with a server on loopback."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from config.errors import MisconfiguredError, TransientError
from tasks.coordination.local import LocalCoordinator
from tasks.language_model.answer_store import StageUsage, StoredAnswer, utc_day
from tasks.language_model.metered import (
    MeteredLanguageModel,
    estimate_tokens,
    seconds_to_next_day,
)
from tasks.language_model.openai_client import OpenAILanguageModel
from tasks.language_model.protocol import (
    InvalidAnswerError,
    ModelRequest,
    ModelUnavailableError,
    TokenBudgetError,
)
from tasks.language_model.sqlite_answers import SqliteAnswerStore
from tests.support.servers.language_model import (
    MODEL,
    Asked,
    LanguageModelServer,
    Reply,
    broken,
    stalling,
)
from workers.monitoring.metrics import ProcessMetrics

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp()
DAY = "2026-11-22"
LAST_SECOND = datetime(2026, 11, 22, 23, 59, 59, tzinfo=UTC).timestamp()


class Choice(BaseModel):
    """An answer."""

    model_config = ConfigDict(extra="forbid")

    ids: list[str]


def question(
    data: str = "which?", seconds: float | None = 60.0, max_tokens: int = 100
) -> ModelRequest:
    return ModelRequest("select", 1, "Choose one.", data, max_tokens, seconds)


def refuse_b(answer: Choice) -> None:
    if "b" in answer.ids:
        raise InvalidAnswerError("b was not given")


class Setting:
    """A server, a store and models over them. now: the time of their clock."""

    def __init__(self, server: LanguageModelServer, path: Path) -> None:
        self.server = server
        self.path = path
        self.now = NOON
        self.answers = SqliteAnswerStore(path)
        self.coordinator = LocalCoordinator()
        self.metrics = ProcessMetrics()
        self._opened: list[MeteredLanguageModel] = []

    def model(
        self, answers: SqliteAnswerStore | None = None, **settings: Any
    ) -> MeteredLanguageModel:
        chosen = self.server.settings(**settings)
        client = OpenAILanguageModel(chosen)
        metered = MeteredLanguageModel(
            client,
            answers or self.answers,
            chosen,
            self.coordinator,
            self.metrics.recorder,
            lambda: self.now,
        )
        self._opened.append(metered)
        return metered

    def lock(self, request: ModelRequest) -> AbstractContextManager[bool]:
        """The lock of a question, as another worker holds it."""
        return self.coordinator.try_lock(f"model-answer:{request.key(MODEL, Choice)}")

    def close(self) -> None:
        for model in self._opened:
            model.close()
        self.answers.close()


@pytest.fixture
def answer() -> Callable[[Asked], Any]:
    return lambda asked: Reply('{"ids": ["a"]}', usage=(70, 30))


@pytest.fixture
def setting(answer: Callable[[Asked], Any], tmp_path: Path) -> Iterator[Setting]:
    with LanguageModelServer(answer) as server:
        made = Setting(server, tmp_path / "answers.db")
        yield made
        made.close()


# -- stored answers
def test_an_answer_is_paid_for_once(setting: Setting) -> None:
    model = setting.model()
    first = model.complete(question(), Choice)
    again = model.complete(question(), Choice)
    assert first.answer == again.answer == Choice(ids=["a"])
    assert (first.calls, first.usage.total, again.calls, again.usage.total) == (1, 100, 0, 0)
    assert setting.server.requests == 1
    assert setting.answers.get_usage(DAY) == {"select": StageUsage(1, 70, 30, 1)}


def test_what_the_answer_depends_on_is_asked_again(setting: Setting) -> None:
    model = setting.model()
    for request in (question(), question("what?"), question(max_tokens=50, seconds=4)):
        model.complete(request, Choice)
    assert setting.server.requests == 2, "limits of time and length change no answer"


def test_a_stored_answer_is_checked_again(setting: Setting) -> None:
    model = setting.model()
    key = question().key(MODEL, Choice)
    setting.answers.save_answer(key, "select", MODEL, StoredAnswer('{"ids": ["b"]}'))
    with pytest.raises(InvalidAnswerError, match="b was not given"):
        model.complete(question(), Choice, refuse_b)
    other = question("damaged")
    setting.answers.save_answer(other.key(MODEL, Choice), "select", MODEL, StoredAnswer('{"ids'))
    with pytest.raises(InvalidAnswerError, match="an incomplete or invalid JSON object"):
        model.complete(other, Choice)
    assert setting.server.requests == 0


def test_an_invalid_answer_is_stored_and_its_tries_are_counted(setting: Setting) -> None:
    setting.server.script = lambda asked: Reply('{"ids": ["b"]}', usage=(70, 30))
    model = setting.model()
    for _ in range(2):
        with pytest.raises(InvalidAnswerError, match="b was not given"):
            model.complete(question(), Choice, refuse_b)
    assert setting.server.requests == 3
    assert setting.answers.get_usage(DAY) == {"select": StageUsage(3, 210, 90, 1)}


def test_a_failure_is_not_stored_and_ends_claim_and_reservation(setting: Setting) -> None:
    model = setting.model(daily_tokens=120)
    setting.server.queue.append(broken(401))
    with pytest.raises(MisconfiguredError):
        model.complete(question(), Choice)
    assert model.complete(question(), Choice).calls == 1


# -- a store that fails
def test_an_answer_that_cannot_be_stored_is_given_and_counted(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise TransientError("the disk is full")

    monkeypatch.setattr(setting.answers, "save_answer", fail)
    assert setting.model().complete(question(), Choice).answer.ids == ["a"]
    line = b'skillbus_model_failures_total{kind="store",stage="select"} 1.0'
    assert line in setting.metrics.render()


# -- locks of questions
def test_workers_with_one_question_ask_once(setting: Setting) -> None:
    setting.server.script = lambda asked: stalling(0.3, {"ids": ["a"]})
    models = [setting.model(), setting.model(SqliteAnswerStore(setting.path))]
    together = threading.Barrier(6)

    def ask(number: int) -> int:
        together.wait()
        return models[number % 2].complete(question(), Choice).calls

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(ask, range(6))) == [0] * 5 + [1]
    assert setting.server.requests == 1


def test_a_worker_waits_no_longer_than_its_seconds(setting: Setting) -> None:
    request = question(seconds=0.3)
    started = time.monotonic()
    with setting.lock(request), pytest.raises(ModelUnavailableError, match="another worker"):
        setting.model().complete(request, Choice)
    assert 0.25 < time.monotonic() - started < 100
    assert setting.server.requests == 0


def test_what_was_waited_is_taken_from_the_time_of_the_call(setting: Setting) -> None:
    left: list[float] = []

    class Timed(OpenAILanguageModel):
        """Notes how much time a call is given."""

        def complete(self, request: ModelRequest, *answer: Any) -> Any:
            assert request.seconds is not None
            left.append(request.seconds)
            return super().complete(request, *answer)

    request = question(seconds=100.0)
    settings = setting.server.settings()
    model = MeteredLanguageModel(Timed(settings), setting.answers, settings, setting.coordinator)
    started = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        with setting.lock(request):
            asked = pool.submit(model.complete, request, Choice)
            time.sleep(0.7)
        assert asked.result().calls == 1
    spent = time.monotonic() - started
    model.close()
    [given] = left
    assert 100 - spent - 0.1 < given < 99.5


# -- the budget
def test_the_estimate_is_the_prompt_and_the_longest_answer() -> None:
    request = ModelRequest("select", 1, "one two", "three four five", 1000)
    assert estimate_tokens(request) == 2 + 3 + 1000


def test_a_spent_budget_ends_until_the_next_day(setting: Setting) -> None:
    model = setting.model(daily_tokens=210)
    model.complete(question("one"), Choice)
    model.complete(question("two"), Choice)
    with pytest.raises(TokenBudgetError, match="200 of 210 tokens") as spent:
        model.complete(question("three"), Choice)
    assert spent.value.retry_after == 12 * 3600
    assert setting.server.requests == 2
    assert model.complete(question("one"), Choice).calls == 0, "stored answers cost nothing"
    setting.now += spent.value.retry_after
    assert model.complete(question("three"), Choice).calls == 1
    assert setting.answers.get_usage("2026-11-23") == {"select": StageUsage(1, 70, 30)}


def test_a_call_over_midnight_counts_for_the_day_on_which_it_began(setting: Setting) -> None:
    setting.now = LAST_SECOND

    def answer_late(asked: Asked) -> Reply:
        setting.now += 2
        return Reply('{"ids": []}', usage=(70, 30))

    setting.server.script = answer_late
    setting.model().complete(question(), Choice)
    assert setting.answers.get_usage(DAY) == {"select": StageUsage(1, 70, 30)}
    assert setting.answers.get_usage("2026-11-23") == {}


def test_without_a_limit_nothing_is_refused(setting: Setting) -> None:
    setting.server.script = lambda asked: Reply('{"ids": []}', usage=(10**8, 10**8))
    model = setting.model(daily_tokens=0)
    assert model.complete(question("one"), Choice).calls == 1
    assert model.complete(question("two"), Choice).calls == 1


def test_tokens_that_others_reserved_are_waited_for(setting: Setting) -> None:
    model = setting.model(daily_tokens=150)
    started = time.monotonic()
    assert setting.answers.reserve_tokens(DAY, 100, 0, 0.4) is not None
    assert model.complete(question(), Choice).calls == 1
    assert time.monotonic() - started > 0.35


def test_a_reservation_that_stays_is_an_error_in_time(setting: Setting) -> None:
    assert setting.answers.reserve_tokens(DAY, 100, 0, 3600) is not None
    with pytest.raises(TokenBudgetError, match="running calls") as caught:
        setting.model(daily_tokens=150).complete(question(seconds=0.3), Choice)
    assert caught.value.retry_after < 60, "tokens are left today"
    assert setting.server.requests == 0


def test_days_are_those_of_utc() -> None:
    assert utc_day(LAST_SECOND) == DAY
    assert utc_day(LAST_SECOND + 1) == "2026-11-23"
    assert seconds_to_next_day(LAST_SECOND) == 1
    assert seconds_to_next_day(LAST_SECOND + 1) == 24 * 3600


# -- metrics
def test_calls_tokens_and_failures_are_measured_by_stage(setting: Setting) -> None:
    assert b"skillbus_model" not in setting.metrics.render()
    model = setting.model(daily_tokens=220)
    for data in ("one", "one", "two"):
        model.complete(question(data), Choice)
    with pytest.raises(TokenBudgetError):
        model.complete(question("three"), Choice)
    lines = setting.metrics.render().decode().splitlines()
    for line in (
        'skillbus_model_calls_total{stage="select"} 2.0',
        'skillbus_model_tokens_total{kind="prompt",stage="select"} 140.0',
        'skillbus_model_tokens_total{kind="completion",stage="select"} 60.0',
        'skillbus_model_stored_answers_total{stage="select"} 1.0',
        'skillbus_model_failures_total{kind="budget",stage="select"} 1.0',
        'skillbus_model_seconds_count{stage="select"} 2.0',
    ):
        assert line in lines
