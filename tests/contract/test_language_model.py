"""The contract of every `LanguageModel`, against a server that misbehaves on command."""

from __future__ import annotations

import io
import logging
import multiprocessing
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import structlog
from pydantic import BaseModel, ConfigDict, Field

from config.errors import MisconfiguredError, SkillbusError
from tasks.language_model.endpoint.state import state_of
from tasks.language_model.endpoint.transport import MAX_BODY_BYTES
from tasks.language_model.openai_client import OpenAILanguageModel
from tasks.language_model.protocol import (
    InvalidAnswerError,
    LanguageModel,
    ModelAnswer,
    ModelRequest,
    ModelUnavailableError,
    TokenUsage,
)
from tests.support.program.program import wait_for
from tests.support.program.secrecy import made_up
from tests.support.servers.language_model import (
    MODEL,
    Answer,
    Asked,
    LanguageModelServer,
    Reply,
    broken,
    error,
    half_a_body,
    huge,
    no_choices,
    permuted,
    rate_limited,
    stalling,
    thinking,
    trickling,
)

GIVEN = ("a", "b", "c")


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")

    ids: list[str] = Field(max_length=3)


def is_permutation(order: Order) -> None:
    """The check of a stage that gave three ids."""
    if sorted(order.ids) != sorted(GIVEN):
        raise InvalidAnswerError("not the ids that were given")


RIGHT = {"ids": ["c", "a", "b"]}
REQUEST = ModelRequest("select", 1, "Sort the ids.", '["a", "b", "c"]', 200, seconds=10)
Make = Callable[..., LanguageModel]


@pytest.fixture
def server() -> Iterator[LanguageModelServer]:
    with LanguageModelServer(lambda asked: RIGHT) as running:
        yield running


@pytest.fixture(params=["openai"])
def make(request: pytest.FixtureRequest, server: LanguageModelServer) -> Iterator[Make]:
    """Makes a model of the server, with changes of the settings; closed after the test."""
    made: list[LanguageModel] = []

    def make(**changes: Any) -> LanguageModel:
        made.append({"openai": OpenAILanguageModel}[request.param](server.settings(**changes)))
        return made[-1]

    yield make
    for model in made:
        model.close()


@pytest.fixture
def model(make: Make) -> LanguageModel:
    return make()


def ask(model: LanguageModel, seconds: float | None = 60, **changes: Any) -> ModelAnswer[Order]:
    values: dict[str, Any] = {
        "stage": "select",
        "version": 1,
        "instructions": REQUEST.instructions,
        "data": REQUEST.data,
        "max_tokens": 200,
    }
    return model.complete(
        ModelRequest(**(values | changes), seconds=seconds), Order, is_permutation
    )


# What is sent and returned


def test_an_answer_is_an_object_with_its_cost(
    model: LanguageModel, server: LanguageModelServer
) -> None:
    completion = ask(model)
    assert completion.answer == Order(ids=["c", "a", "b"])
    assert completion.calls == 1
    assert completion.usage.prompt > 0
    assert completion.usage.completion > 0
    assert not completion.usage.estimated
    assert model.model == MODEL
    body = server.asked[0].body
    assert body["model"] == MODEL
    assert body["max_tokens"] == 200
    assert body["temperature"] == 0
    assert server.asked[0].instructions == REQUEST.instructions
    assert server.asked[0].data == REQUEST.data
    assert server.asked[0].schema["required"] == ["ids"]
    server.settle()
    assert server.delivered == 1


def test_further_fields_are_sent(make: Make, server: LanguageModelServer) -> None:
    ask(make(extra_body={"chat_template_kwargs": {"enable_thinking": False}}, temperature=0.7))
    assert server.asked[0].body["chat_template_kwargs"] == {"enable_thinking": False}
    assert server.asked[0].temperature == 0.7


def test_nothing_of_the_environment_is_sent(
    make: Make,
    server: LanguageModelServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither another key nor another account, and nothing goes through a proxy."""
    monkeypatch.setenv("OPENAI_API_KEY", made_up("of-another-service"))
    monkeypatch.setenv("OPENAI_ORG_ID", "an-organisation")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Custom: yes")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    ask(make())
    assert server.asked[0].key == ""
    assert server.asked[0].headers.keys() == {
        "host", "accept", "accept-encoding", "content-type", "content-length", "user-agent",
    }  # fmt: skip


def test_another_name_of_the_model_is_logged_once(
    model: LanguageModel, server: LanguageModelServer
) -> None:
    server.script = lambda asked: Reply('{"ids": ["c", "a", "b"]}', model="scripted-model-2026")
    with structlog.testing.capture_logs() as logs:
        ask(model)
        ask(model)
    assert [line.get("answered") for line in logs].count("scripted-model-2026") == 1


# Forms of requests, from the one that enforces most


def test_a_refused_form_is_replaced_by_the_next_and_remembered(
    make: Make, server: LanguageModelServer
) -> None:
    server.formats = ("json_object",)
    completion = ask(make())
    assert [asked.format for asked in server.asked] == ["json_schema", "json_object"]
    assert '"ids"' in server.asked[1].instructions
    assert completion.calls == 2
    ask(make())
    assert [asked.format for asked in server.asked[2:]] == ["json_object"]


def test_a_server_without_forms_is_asked_plainly(
    model: LanguageModel, server: LanguageModelServer
) -> None:
    server.formats = ()
    server.script = lambda asked: '```json\n{"ids": ["c", "a", "b"]}\n```'
    assert ask(model).answer.ids == ["c", "a", "b"]
    ask(model)
    assert [asked.format for asked in server.asked] == ["json_schema", "json_object", "", ""]


def test_an_ignored_form_goes_down_until_the_schema_is_in_the_prompt(
    make: Make, server: LanguageModelServer
) -> None:
    def ignoring(asked: Asked) -> Answer:
        return RIGHT if '"ids"' in asked.instructions else "The order is c, a, b."

    server.script = ignoring
    assert ask(make()).calls == 2
    assert ask(make()).calls == 1
    assert [asked.format for asked in server.asked] == ["json_schema", "json_object", "json_object"]


def test_a_form_is_kept_after_a_wrong_answer_of_the_right_form(
    make: Make, server: LanguageModelServer
) -> None:
    server.queue.extend([{"ids": ["x"]}, {"ids": ["a", "b", "c", "d"]}])
    assert ask(make()).calls == 3
    assert {asked.format for asked in server.asked} == {"json_schema"}


def test_a_form_is_kept_if_no_form_helps(make: Make, server: LanguageModelServer) -> None:
    server.script = lambda asked: "No."
    with pytest.raises(InvalidAnswerError):
        ask(make())
    server.script = lambda asked: RIGHT
    ask(make())
    assert server.asked[-1].format == "json_schema"


@pytest.mark.parametrize(
    ("field", "message", "wanted"),
    [
        ("max_tokens", "Unsupported: 'max_tokens'. Use 'max_completion_tokens' instead.",
         {"max_completion_tokens": 200}),
        ("temperature", "Unsupported value: 'temperature' does not support 0.0", {}),
    ],
)  # fmt: skip
def test_fields_that_a_model_refuses_are_replaced_once(
    make: Make, server: LanguageModelServer, field: str, message: str, wanted: dict[str, Any]
) -> None:
    server.script = lambda asked: error(400, message) if field in asked.body else RIGHT
    assert ask(make()).calls == 2
    assert ask(make()).calls == 1
    last = server.asked[-1]
    assert last.format == "json_schema"
    assert wanted.items() <= last.body.items()


# Invalid answers


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(permuted(RIGHT, "ids"), id="wrong permutation"),
        pytest.param({"ids": None}, id="missing list"),
        pytest.param("I cannot say.", id="prose"),
        pytest.param(Reply(content=None), id="null"),
        pytest.param(Reply(content=None, refusal="I will not."), id="refusal"),
        pytest.param(Reply('{"ids": ["c"', finish_reason="length"), id="cut off"),
        pytest.param(Reply("", finish_reason="content_filter"), id="filtered"),
        pytest.param(no_choices(), id="no choices"),
        pytest.param(huge(MAX_BODY_BYTES + 1), id="too large"),
    ],
)
def test_an_invalid_answer_is_asked_for_again_twice_with_more_temperature(
    make: Make, server: LanguageModelServer, wrong: Answer
) -> None:
    model = make(temperature=0.1)
    server.queue.append(wrong)
    completion = ask(model)
    assert completion.answer == Order(**RIGHT)
    assert completion.calls == 2
    assert [asked.temperature for asked in server.asked] == [0.1, 0.4]

    server.script = lambda asked: wrong
    with pytest.raises(InvalidAnswerError) as caught:
        ask(model)
    assert [asked.temperature for asked in server.asked[2:]] == [0.1, 0.4, 0.7]
    assert caught.value.calls == 3
    assert caught.value.usage.prompt > 0
    assert server.url not in str(caught.value)


@pytest.mark.parametrize(
    "right",
    [
        pytest.param(thinking(RIGHT), id="think"),
        pytest.param(thinking(RIGHT, tag=""), id="reasoning_content"),
        pytest.param(
            Reply('{"ids": ["c", "a", "b"]}', finish_reason="length"), id="whole at the limit"
        ),
    ],
)
def test_what_stands_around_the_object_does_no_harm(
    model: LanguageModel, server: LanguageModelServer, right: Answer
) -> None:
    server.script = lambda asked: right
    assert ask(model).calls == 1


def test_usage_is_that_of_all_tries(model: LanguageModel, server: LanguageModelServer) -> None:
    server.queue.append(Reply("no", usage=(100, 10)))
    server.queue.append(Reply("no", usage=(100, 20)))
    server.queue.append(Reply('{"ids": ["c", "a", "b"]}', usage=(100, 30)))
    assert ask(model).usage == TokenUsage(300, 60)


def test_a_server_that_sends_too_much_is_not_read_to_the_end(
    model: LanguageModel, server: LanguageModelServer
) -> None:
    server.queue.append(huge(5 * MAX_BODY_BYTES))  # more than the buffers of sockets hold
    ask(model)
    server.settle()
    assert server.disconnects == 1


def test_a_compressed_body_is_refused(model: LanguageModel, server: LanguageModelServer) -> None:
    server.script = lambda asked: Reply(body=b"x", headers={"Content-Encoding": "gzip"})
    with pytest.raises(ModelUnavailableError, match="compressed"):
        ask(model)


# Settings that are wrong


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (error(401, "no"), "api_key_file"),
        (error(402, "no"), "account"),
        (error(403, "no"), "api_key_file"),
        (error(404, "no"), "language_model.model"),
        (error(429, "You exceeded your current quota", "insufficient_quota"), "account"),
        (error(400, "unknown field"), "extra_body"),
        (Reply(status=307, headers={"Location": "http://127.0.0.1:9/v1"}, body=b""), "redirects"),
        (Reply(body=b"<html>Welcome</html>"), "base_url"),
        (Reply(body=b"[]"), "base_url"),
    ],
)
def test_a_wrong_setting_is_said_and_not_tried_again(
    model: LanguageModel, server: LanguageModelServer, reply: Reply, words: str
) -> None:
    server.script = lambda asked: reply
    with pytest.raises(MisconfiguredError, match=words) as caught:
        ask(model)
    assert "127.0.0.1" not in caught.value.public_message
    assert server.requests == (3 if reply.status == 400 else 1)


def test_a_refused_prompt_is_no_wrong_setting(
    model: LanguageModel, server: LanguageModelServer
) -> None:
    server.queue.append(error(400, "Your prompt was flagged", "content_filter"))
    with pytest.raises(InvalidAnswerError, match="refused the prompt"):
        ask(model)
    assert server.requests == 1
    ask(model)
    server.script = lambda asked: error(400, "refused")
    with pytest.raises(InvalidAnswerError, match="refused the prompt"):
        ask(model)
    server.script = lambda asked: RIGHT
    ask(model)
    assert server.asked[-1].format == "json_schema"


# Endpoints that fail


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(broken(500), id="500"),
        pytest.param(broken(503), id="503"),
        pytest.param(error(408, "slow"), id="408"),
        pytest.param(half_a_body(RIGHT), id="half a body"),
        pytest.param(Reply(cut=0), id="no body"),
        pytest.param(Reply(body=b'{"error": {"message": "upstream failed"}}'), id="error in 200"),
    ],
)
def test_a_failing_endpoint_is_not_asked_again(
    model: LanguageModel, server: LanguageModelServer, reply: Reply
) -> None:
    server.queue.append(reply)
    with pytest.raises(ModelUnavailableError) as caught:
        ask(model)
    assert server.requests == 1
    assert caught.value.calls == 1
    assert "127.0.0.1" not in caught.value.public_message
    ask(model)  # one failure opens no circuit


def test_an_endpoint_that_is_away_fails(server: LanguageModelServer, make: Make) -> None:
    with LanguageModelServer(lambda asked: RIGHT) as other:
        address = other.url
    with pytest.raises(ModelUnavailableError, match="ConnectError"):
        ask(make(base_url=address))


def test_the_deadline_cancels_the_call_and_the_server_sees_it(
    model: LanguageModel, server: LanguageModelServer
) -> None:
    ask(model)  # the first call imports modules
    server.queue.append(trickling(1.0, RIGHT))
    began = time.monotonic()
    with pytest.raises(ModelUnavailableError) as caught:
        ask(model, seconds=3)
    assert 2.9 < time.monotonic() - began < 100  # the whole answer takes 200 s and more
    assert caught.value.usage.estimated
    server.settle()
    assert server.disconnects == 1


def test_the_time_limit_of_the_settings_is_that_of_a_call(
    make: Make, server: LanguageModelServer
) -> None:
    model = make(timeout_seconds=3)
    ask(model)
    server.queue.append(stalling(200))
    with pytest.raises(ModelUnavailableError):
        ask(model, seconds=None)
    server.queue.extend(Reply("no", wait=1.1) for _ in range(2))
    server.queue.append(Reply('{"ids": ["c", "a", "b"]}', wait=1.1))
    assert ask(model, seconds=None).calls == 3


def test_tries_end_with_the_deadline_of_the_request(
    model: LanguageModel, server: LanguageModelServer
) -> None:
    ask(model)  # the first call imports modules
    server.queue.append(Reply("no"))
    server.script = lambda asked: stalling(200)
    with pytest.raises(ModelUnavailableError) as caught:
        ask(model, seconds=3)
    assert caught.value.calls == 2
    assert caught.value.usage.completion > 0


# Rate limits


def test_retry_after_is_obeyed(model: LanguageModel, server: LanguageModelServer) -> None:
    ask(model)
    began = time.monotonic()
    server.queue.append(rate_limited("1"))
    assert ask(model).calls == 2
    assert time.monotonic() - began > 1


def test_a_limit_without_a_time_is_waited_for(
    model: LanguageModel, server: LanguageModelServer
) -> None:
    server.queue.append(rate_limited())
    began = time.monotonic()
    assert ask(model).calls == 2
    assert time.monotonic() - began > 0.9


def test_a_pause_beyond_the_deadline_is_an_error_at_once_for_all_clients(
    make: Make, server: LanguageModelServer
) -> None:
    server.queue.append(rate_limited("1000"))
    for model in (make(), make()):
        began = time.monotonic()
        with pytest.raises(ModelUnavailableError) as caught:
            ask(model, seconds=200)
        assert time.monotonic() - began < 100
        assert caught.value.retry_after is not None
        assert 800 < caught.value.retry_after <= 1000
    assert server.requests == 1


def test_calls_wait_together_for_the_end_of_a_pause(
    model: LanguageModel, server: LanguageModelServer
) -> None:
    server.queue.append(rate_limited("2"))
    server.queue.append(Reply('{"ids": ["c", "a", "b"]}'))
    state = state_of(server.url, MODEL)
    began = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(ask, model)
        wait_for(lambda: state.seconds_to_wait() or server.requests > 1)
        ask(model)
        assert time.monotonic() - began > 1.9
        first.result()
    assert server.requests == 3


def test_an_endless_limit_ends(model: LanguageModel, server: LanguageModelServer) -> None:
    server.script = lambda asked: rate_limited("0")
    with pytest.raises(ModelUnavailableError, match="rate"):
        ask(model)
    assert server.requests == 5


# The circuit


def stay_open(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Have a circuit stay open at least so long, as a machine may stand still for some seconds."""
    monkeypatch.setattr("tasks.language_model.endpoint.state._FIRST_OPEN_SECONDS", seconds)


def test_a_dead_endpoint_costs_nothing_after_two_failures(
    make: Make, server: LanguageModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stay_open(monkeypatch, 60.0)
    server.script = lambda asked: broken()
    for model in [make(), make()] * 5:
        with pytest.raises(ModelUnavailableError):
            ask(model)
    assert server.requests == 2


def test_a_stalling_endpoint_holds_up_only_the_first_calls(
    model: LanguageModel, server: LanguageModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stay_open(monkeypatch, 60.0)
    ask(model)
    server.script = lambda asked: stalling()
    for _ in range(10):
        with pytest.raises(ModelUnavailableError):
            ask(model, seconds=1.5)
    assert server.requests == 3


def test_a_call_with_more_time_is_not_stopped_by_short_ones(
    model: LanguageModel, server: LanguageModelServer
) -> None:
    server.script = lambda asked: stalling()
    for _ in range(3):
        with pytest.raises(ModelUnavailableError):
            ask(model, seconds=0.2)
    server.script = lambda asked: RIGHT
    ask(model, seconds=60)
    ask(model, seconds=30)  # an answer closes the circuit for all


def test_one_call_tries_after_the_pause(
    model: LanguageModel, server: LanguageModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stay_open(monkeypatch, 60.0)
    server.queue.extend([broken(), broken()])
    for _ in range(2):
        with pytest.raises(ModelUnavailableError):
            ask(model)
    with pytest.raises(ModelUnavailableError, match="failed a moment ago") as caught:
        ask(model)
    assert caught.value.retry_after is not None
    monkeypatch.setattr(state_of(server.url, MODEL), "_open_until", 0.0)
    answer_now = threading.Event()

    def answer_late(asked: Asked) -> Answer:
        answer_now.wait(60)
        return RIGHT

    server.script = answer_late
    with ThreadPoolExecutor(1) as pool:
        trying = pool.submit(ask, model, 60)
        server.wait_for_requests(3)
        with pytest.raises(ModelUnavailableError):
            ask(model)
        answer_now.set()
        trying.result()
    ask(model)
    assert server.requests == 4


# Threads, processes, ends


def test_threads_share_the_concurrency(make: Make, server: LanguageModelServer) -> None:
    model = make(concurrency=3)
    server.script = lambda asked: Reply('{"ids": ["c", "a", "b"]}', wait=0.3)
    with ThreadPoolExecutor(9) as pool:
        answers = list(pool.map(lambda _: ask(model, None), range(9)))
    assert len(answers) == 9
    server.settle()
    assert server.most_running == 3
    assert server.delivered == 9


def test_waiting_for_a_slot_ends_with_the_deadline(make: Make, server: LanguageModelServer) -> None:
    model = make(concurrency=1)
    ask(model)
    answer_now = threading.Event()

    def answer_late(asked: Asked) -> Answer:
        answer_now.wait(60)
        return RIGHT

    server.script = answer_late
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(ask, model, 60)
        server.wait_for_requests(2)
        with pytest.raises(ModelUnavailableError, match="concurrency"):
            ask(model, seconds=2)
        answer_now.set()
        slow.result()
    ask(model)


def test_close_cancels_running_calls(make: Make, server: LanguageModelServer) -> None:
    model = make()
    server.script = lambda asked: stalling(200)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(ask, model, 200)
        server.wait_for_requests(1)
        model.close()
        with pytest.raises(ModelUnavailableError, match="closed"):
            running.result(100)
    server.settle()
    assert server.disconnects == 1
    with pytest.raises(ModelUnavailableError, match="closed"):
        ask(model)
    model.close()


def test_the_thread_ends_with_its_client(make: Make) -> None:
    def threads() -> int:
        return sum(thread.name == "language-model" for thread in threading.enumerate())

    one, other = make(), make()
    ask(one)
    ask(other)
    one.close()
    ask(other)
    other.close()
    assert threads() == 0


def test_a_forked_process_has_its_own_connections(make: Make, server: LanguageModelServer) -> None:
    model = make()
    ask(model)
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)

    def in_child() -> None:
        sending.send((os.getpid(), ask(model).answer.ids))

    child = context.Process(target=in_child)
    child.start()
    assert receiving.poll(120)
    pid, ids = receiving.recv()
    child.join()
    assert pid != os.getpid()
    assert ids == RIGHT["ids"]
    ask(model)
    assert server.requests == 3


# The key


def test_the_key_is_sent_and_nowhere_shown(
    make: Make, server: LanguageModelServer, tmp_path: Path
) -> None:
    """Not in logs at the lowest level, in errors with their causes, nor in any object's text."""
    server.key = made_up("api-key")
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    errors: list[BaseException] = []
    try:
        with structlog.testing.capture_logs() as logs:
            model = make(api_key_file=server.write_key(tmp_path / "key"))
            ask(model)
            echo = f"Incorrect API key provided: {server.key}"
            for reply in (
                error(401, echo),
                error(500, echo),
                error(400, echo),
                Reply(body=f'{{"error": "{echo}"}}'.encode()),
                half_a_body(),
                Reply("no", model=server.key),
            ):
                server.script = lambda asked, reply=reply: reply  # type: ignore[misc]  # mypy cannot infer it
                try:
                    ask(make(api_key_file=tmp_path / "key", model=MODEL))
                except SkillbusError as failure:
                    errors.append(failure)
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    assert server.asked[0].key == server.key
    assert len(errors) == 6
    shown = [repr(model), str(model), str(vars(model)), written.getvalue(), repr(logs)]
    for one in errors:
        shown += traceback.format_exception(one)
        shown.append(repr(vars(one)))
    assert any(echo[:20] in text for text in shown)
    for text in shown:
        assert server.key not in text


@pytest.mark.parametrize("content", [None, "", "two\nlines", "schlüssel", "with space", "a\x01b"])
def test_a_file_without_a_usable_key_is_a_wrong_setting(
    make: Make, tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(MisconfiguredError, match=r"language_model\.api_key_file") as caught:
        make(api_key_file=path)
    assert not content or content not in str(caught.value)


def test_a_key_goes_to_no_other_address(
    make: Make, server: LanguageModelServer, tmp_path: Path
) -> None:
    with LanguageModelServer(lambda asked: RIGHT) as other:
        server.key = made_up("api-key")
        moved = Reply(status=307, headers={"Location": f"{other.url}/chat/completions"}, body=b"")
        server.script = lambda asked: moved
        with pytest.raises(MisconfiguredError, match="redirects"):
            ask(make(api_key_file=server.write_key(tmp_path / "key")))
        assert other.requests == 0
