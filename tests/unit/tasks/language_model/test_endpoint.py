"""What is read from an endpoint's answers, and what is learned from its refusals."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tasks.language_model.endpoint.chat_completion import read_reply
from tasks.language_model.endpoint.refusals import (
    RefusedRequestError,
    read_retry_after,
    translate_status,
)
from tasks.language_model.endpoint.state import EndpointState
from tasks.language_model.protocol import ModelUnavailableError, TokenUsage

START_OF_2100 = 4_102_444_800.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"retry-after": "Fri, 01 Jan 2100 00:00:10 GMT"}, 10.0),
        ({}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "Thu, 99 Foo 2026 00:00:00 GMT"}, None),
        ({"retry-after": f"Thu, {'9' * 30} Jan 1970 00:00:00 GMT"}, None),
    ],
)
def test_headers_of_any_form_are_read(
    headers: dict[str, str], seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: START_OF_2100)
    assert read_retry_after(headers) == seconds


def read_text(content: Any) -> str:
    body = json.dumps({"choices": [{"message": {"content": content}}]}).encode()
    return read_reply(body, "prompt").text


@pytest.mark.parametrize(
    ("reason", "problem"),
    [("error", "ended by an error of the endpoint"), ("stop", ""), (None, ""), ([], "")],
)
def test_an_answer_that_an_error_ended_is_not_complete(reason: Any, problem: str) -> None:
    choice = {"finish_reason": reason, "message": {"content": '{"ids": ['}}
    body = json.dumps({"choices": [choice]}).encode()
    assert read_reply(body, "prompt").problem == problem


@pytest.mark.parametrize("counts", [(10**12, 5), (5, 10**12), (0, 5), ("5", 5), (None, None)])
def test_usage_that_is_not_counted_is_estimated(counts: tuple[Any, Any]) -> None:
    usage = dict(zip(("prompt_tokens", "completion_tokens"), counts, strict=True))
    completion = {"choices": [{"message": {"content": "one two"}}], "usage": usage}
    found = read_reply(json.dumps(completion).encode(), "the whole prompt").usage
    assert found == TokenUsage(3, 2, estimated=True)


def test_the_texts_of_parts_are_joined() -> None:
    parts = [{"text": "one"}, {"type": "image"}, {"text": 2}, "x", {"text": " two"}]
    assert read_text(parts) == "one two"


def test_parts_within_parts_are_no_text() -> None:
    content: Any = "x"
    for _ in range(300):
        content = [{"text": content}]
    assert read_text(content) == ""


@pytest.mark.parametrize(
    ("message", "is_about_prompt"),
    [
        ("context_length_exceeded This model's maximum context length is 10 tokens", True),
        ("content_filter The prompt triggered the content management policy", True),
        ("invalid_prompt Your prompt was flagged", True),
        ("unsupported_value 'response_format' is not supported with this model", False),
    ],
)
def test_a_refusal_may_be_about_the_prompt(message: str, is_about_prompt: bool) -> None:
    assert RefusedRequestError(400, message).is_about_prompt is is_about_prompt


def test_a_refused_request_closes_the_circuit() -> None:
    """The endpoint responds: it is asked in another form at once."""
    state = EndpointState("model")
    for _ in range(2):
        state.fail("status 503")
    with pytest.raises(ModelUnavailableError, match="failed a moment ago"):
        state.admit(60, starts=True)
    refusal = translate_status(400, {}, "unknown field response_format", "here", state)
    assert isinstance(refusal, RefusedRequestError)
    state.admit(60, starts=True)
