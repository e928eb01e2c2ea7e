"""Parser of the body of a chat completion; tolerates fields that a server leaves out or adds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from skills.token_count import count_tokens
from tasks.language_model.protocol import TokenUsage

_MAX_TOKENS = 100_000_000
_PROBLEMS = {
    "length": "cut off at the limit of its length",
    "content_filter": "withheld by the endpoint's filter",
    "error": "ended by an error of the endpoint",
}
"""Why a text has no complete answer, by the reason of its end."""


class NotACompletionError(Exception):
    """The body is not a JSON object, or it is an object with an error.

    message: the server's message; "" if the body is not a JSON object.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply of the model.

    text: content of the first choice; "" without a choice or content. problem: why the text has no
    complete answer; "" if it may have one. model: name of the model, as reported by the server.
    """

    text: str
    problem: str
    model: str
    usage: TokenUsage


def read_reply(body: bytes, prompt: str) -> Reply:
    """Return the reply in the body of a chat completion.

    prompt: the whole prompt; its tokens are estimated if the server does not count them. Thoughts
    in separate fields count as tokens and are left out. Raises NotACompletionError.
    """
    completion = _parse(body)
    error = completion.get("error")
    choices = completion.get("choices")
    if error and not choices:
        raise NotACompletionError(error_message(completion) or "an error")
    choice = _mapping(choices[0]) if isinstance(choices, list) and choices else {}
    message = _mapping(choice.get("message"))
    text = _text(message.get("content"))
    thoughts = _text(message.get("reasoning_content")) or _text(message.get("reasoning"))
    return Reply(
        text,
        _problem(choice, message),
        _text(completion.get("model")),
        _usage(_mapping(completion.get("usage")), prompt, f"{thoughts} {text}"),
    )


def error_message(body: object) -> str:
    """Return the message of an error's body, as OpenAI and others write it; "" if there is none."""
    content = _mapping(body)
    for found in (_mapping(content.get("error")).get("message"), content.get("message")):
        if isinstance(found, str):
            return found
    for found in (content.get("error"), content.get("detail")):
        if found:
            return found if isinstance(found, str) else json.dumps(found)
    return ""


def _parse(body: bytes) -> dict[str, Any]:
    try:
        completion = json.loads(body)
    except (ValueError, RecursionError):
        raise NotACompletionError from None
    if not isinstance(completion, dict):
        raise NotACompletionError
    return completion


def _problem(choice: Mapping[str, Any], message: Mapping[str, Any]) -> str:
    if not choice:
        return "no choice in the completion"
    if message.get("refusal"):
        return "the model refuses to answer"
    return _PROBLEMS.get(str(choice.get("finish_reason")), "")


def _usage(counted: Mapping[str, Any], prompt: str, answer: str) -> TokenUsage:
    sent, received = counted.get("prompt_tokens"), counted.get("completion_tokens")
    # Ollama writes 0 for a prompt that it had in its cache.
    if _is_count(sent) and sent and _is_count(received):
        return TokenUsage(sent, received)
    return TokenUsage(count_tokens(prompt), count_tokens(answer), estimated=True)


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= _MAX_TOKENS


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    """Return a text, or the joined texts of a list of parts."""
    if isinstance(value, list):
        texts = (_mapping(part).get("text") for part in value)
        return "".join(text for text in texts if isinstance(text, str))
    return value if isinstance(value, str) else ""
