"""The client of the language model against llama.cpp's server.

The model's weights are random: what is proven is the wire, the form of answers, usage, limits and
cancellation. The server answers two calls at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from pydantic import BaseModel, ConfigDict
from structlog.testing import capture_logs

from config.errors import MisconfiguredError
from config.language_model_settings import LanguageModelSettings
from tasks.language_model.openai_client import OpenAILanguageModel
from tasks.language_model.protocol import (
    InvalidAnswerError,
    ModelAnswer,
    ModelRequest,
    ModelUnavailableError,
)
from tasks.language_model.structured_answers import AnswerForm
from tests.support.servers.servers import ServerControls

MODEL = "skillbus-tiny"
UNBOUND: dict[str, Any] = {"response_format": {"type": "text"}}
ENDLESS: dict[str, Any] = {**UNBOUND, "ignore_eos": True}
FOREVER = 1_000_000_000
"""Tokens of an answer that does not end by itself: it would take days."""

NOTICE_SECONDS = 1.5
"""The server looks for closed connections when it had no result of any call for a second."""


class Works(BaseModel):
    model_config = ConfigDict(extra="forbid")

    works: bool


class Choice(BaseModel):
    model_config = ConfigDict(extra="forbid")

    skill: Literal["s1", "s2", "s3"]
    needed: Literal["needed", "redundant", "unrelated"]
    reason: str


class Selection(BaseModel):
    model_config = ConfigDict(extra="forbid")

    first: Choice
    others: list[Choice]
    one_is_enough: bool
    missing: str | None


def request(data: str, *, max_tokens: int = 1000, seconds: float | None = None) -> ModelRequest:
    return ModelRequest(
        stage="select",
        version=1,
        instructions="Choose skills for the task.",
        data=data,
        max_tokens=max_tokens,
        seconds=seconds,
    )


Connect = Callable[..., OpenAILanguageModel]


@pytest.fixture
def connect(language_model_url: str, language_model_password_file: Path) -> Iterator[Connect]:
    """Makes clients with these settings in addition."""
    clients = []

    def make(**settings: Any) -> OpenAILanguageModel:
        named = {
            "base_url": language_model_url,
            "model": MODEL,
            "api_key_file": language_model_password_file,
        }
        client = OpenAILanguageModel(LanguageModelSettings(**{**named, **settings}))
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()


class Slots:
    """What the server does at a moment, as it says itself."""

    def __init__(self, base_url: str, key: str) -> None:
        self._url = base_url.removesuffix("/v1") + "/slots"
        self._headers = {"Authorization": f"Bearer {key}"}

    def busy(self) -> int:
        """Calls that are being answered."""
        return sum(slot["is_processing"] for slot in self._read())

    def wait_for(self, busy: int) -> None:
        """Return when so many calls are being answered."""
        deadline = time.monotonic() + 120
        while self.busy() != busy:
            assert time.monotonic() < deadline, self._read()
            time.sleep(0.05 if busy else NOTICE_SECONDS)

    def _read(self) -> list[dict[str, Any]]:
        answer = httpx.get(self._url, headers=self._headers, timeout=120)
        slots: list[dict[str, Any]] = answer.json()
        return slots


@pytest.fixture
def slots(language_model_url: str, language_model_password_file: Path) -> Slots:
    slots = Slots(language_model_url, language_model_password_file.read_text().strip())
    slots.wait_for(busy=0)
    return slots


def test_the_server_enforces_schemas_and_counts_tokens(connect: Connect) -> None:
    report = connect().probe(60)
    assert report.form is AnswerForm.JSON_SCHEMA
    assert report.counts_tokens
    assert report.calls == 1


@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.2])
def test_answers_have_the_structure_that_was_asked_for(
    connect: Connect, temperature: float
) -> None:
    model = connect(temperature=temperature)
    for number in range(5):
        completion = model.complete(request(f"Task {number}: sweep a chimney."), Selection)
        assert completion.calls == 1
        assert isinstance(completion.answer.first, Choice)
        assert 0 < completion.usage.completion <= 1000
        assert not completion.usage.estimated


def test_usage_grows_with_the_prompt(connect: Connect) -> None:
    model = connect()
    short, long = (
        model.complete(request("Sweep the chimney. " * times), Works).usage for times in (1, 100)
    )
    assert 99 * 3 <= long.prompt - short.prompt <= 99 * 12


def test_an_object_is_taken_out_of_a_text_where_no_form_is_enforced(connect: Connect) -> None:
    grammar = 'root ::= "<think>It works.</think> So: ```json" "\\n{\\"works\\": true}\\n" "```"'
    model = connect(extra_body={**UNBOUND, "grammar": grammar})
    assert model.complete(request("Does it work?"), Works).answer.works


def test_an_invalid_answer_is_asked_for_twice_again(connect: Connect) -> None:
    model = connect(extra_body=ENDLESS)
    with pytest.raises(InvalidAnswerError, match="3 answers are invalid") as caught:
        model.complete(request("Does it work?", max_tokens=20), Works)
    assert caught.value.calls == 3
    assert caught.value.usage.completion == 3 * 20
    assert not caught.value.usage.estimated


def test_an_answer_that_a_check_refuses_is_asked_for_twice_again(connect: Connect) -> None:
    seen: list[Works] = []

    def refuse(answer: Works) -> None:
        seen.append(answer)
        raise InvalidAnswerError("not what was given")

    with pytest.raises(InvalidAnswerError, match="not what was given") as caught:
        connect().complete(request("Does it work?"), Works, refuse)
    assert caught.value.calls == len(seen) == 3


def test_a_wrong_key_is_a_wrong_setting(connect: Connect, tmp_path: Path) -> None:
    wrong = tmp_path / "key"
    wrong.write_text("another-key-of-the-same-kind\n")
    with pytest.raises(MisconfiguredError, match="api_key_file") as caught:
        connect(api_key_file=wrong).complete(request("Does it work?"), Works)
    assert "another-key" not in str(caught.value)


def test_a_server_of_one_model_answers_to_any_name_and_the_log_says_so(connect: Connect) -> None:
    with capture_logs() as logs:
        completion = connect(model="no-such-model").complete(request("Does it work?"), Works)
    assert completion.calls == 1
    (line,) = [line for line in logs if "another model" in line["event"]]
    assert (line["asked"], line["answered"]) == ("no-such-model", MODEL)


def test_a_wrong_address_is_a_wrong_setting(connect: Connect, language_model_url: str) -> None:
    model = connect(base_url=f"{language_model_url}/v2")
    with pytest.raises(MisconfiguredError, match="base_url"):
        model.complete(request("Does it work?"), Works)


def test_a_prompt_beyond_the_context_is_not_sent_again(connect: Connect) -> None:
    model = connect()
    with pytest.raises(InvalidAnswerError, match="refused the prompt") as caught:
        model.complete(request("Sweep the chimney. " * 20_000), Works)
    assert caught.value.calls == 1
    assert model.complete(request("Sweep the chimney."), Works).calls == 1


def test_a_call_that_is_given_up_frees_the_server(connect: Connect, slots: Slots) -> None:
    model = connect(extra_body=ENDLESS)
    with pytest.raises(ModelUnavailableError, match="within"):
        model.complete(request("Go on.", max_tokens=FOREVER, seconds=5.0), Works)
    slots.wait_for(busy=0)


@contextmanager
def calls(
    model: OpenAILanguageModel, count: int, max_tokens: int
) -> Iterator[list[Future[ModelAnswer[Works]]]]:
    """Calls at the same time; what they raise is in the futures."""
    with ThreadPoolExecutor(count) as pool:
        try:
            yield [
                pool.submit(
                    model.complete, request(f"Go on, {number}.", max_tokens=max_tokens), Works
                )
                for number in range(count)
            ]
        finally:
            model.close()


def test_closing_the_client_frees_the_server(connect: Connect, slots: Slots) -> None:
    model = connect(extra_body=ENDLESS, concurrency=2)
    with calls(model, 3, FOREVER) as running:
        slots.wait_for(busy=2)  # and one waits for its turn
        model.close()
        for call in running:
            assert isinstance(call.exception(timeout=120), ModelUnavailableError)
    slots.wait_for(busy=0)


def test_no_more_calls_than_the_settings_say_run_at_a_time(connect: Connect, slots: Slots) -> None:
    model = connect(extra_body=ENDLESS, concurrency=1)
    with calls(model, 3, FOREVER):
        slots.wait_for(busy=1)
        for _ in range(20):
            assert slots.busy() == 1
            time.sleep(0.05)
    slots.wait_for(busy=0)


def test_a_server_that_stalls_is_left_at_the_deadline_and_used_again(
    connect: Connect, servers: ServerControls
) -> None:
    model = connect()
    assert model.complete(request("Does it work?"), Works).calls == 1
    servers.language_model.freeze()
    with pytest.raises(ModelUnavailableError):
        model.complete(request("Does it work?", seconds=3.0), Works)
    servers.language_model.thaw()
    assert model.complete(request("Does it work?", seconds=120), Works).calls == 1


def test_a_server_that_ends_is_used_again_when_it_is_back(
    connect: Connect, servers: ServerControls
) -> None:
    model = connect()
    assert model.complete(request("Does it work?"), Works).calls == 1
    servers.language_model.kill()
    with pytest.raises(ModelUnavailableError):
        model.complete(request("Does it work?"), Works)
    servers.language_model.start_again()
    assert model.complete(request("Does it work?"), Works).calls == 1
