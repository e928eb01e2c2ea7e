"""Structured answers: how to request a JSON object, and how to read it from a text.

Servers differ in what they enforce, so there are three forms of requests: the schema is enforced by
the server; any JSON object is enforced, and the schema stands in the prompt; nothing is enforced.
In every form the text is read by the same strict rules and validated by pydantic.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable
from typing import Any, NoReturn

from pydantic import BaseModel, ValidationError

from tasks.language_model.frame import clean, shorten
from tasks.language_model.protocol import AnswerT, InvalidAnswerError, ModelRequest
from tasks.language_model.strict_schema import compact_schema, strict_schema

_FORM = (
    "Answer with exactly one JSON object and no other text. The object must be valid against this "
    "JSON schema:"
)
_THOUGHTS = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_END_OF_THOUGHTS = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_START_OF_ANSWER = re.compile(r"\s*(?:\{|```)")
_BRACKET = re.compile(r"[][{}]")
_MADE_BY_VALIDATORS = ("value_error", "assertion_error")
_LIMITS = re.compile(r"too_(?:short|long)|greater_than|less_than|multiple_of|pattern|finite")
_REASON_TOKENS = 60


class AnswerForm(enum.IntEnum):
    """What the server enforces of an answer's form. A higher number means less."""

    JSON_SCHEMA = 0
    JSON_OBJECT = 1
    PLAIN = 2


class UnreadableAnswerError(InvalidAnswerError):
    """The answer does not have the requested structure: no JSON object, or other fields.

    extracted: whether it is a JSON object. A server that enforces a form cannot give such an
    answer.
    """

    def __init__(self, message: str, *, extracted: bool = False) -> None:
        super().__init__(message)
        self.extracted = extracted


def choose_form(known: AnswerForm, answer_type: type[BaseModel]) -> AnswerForm:
    """Return the form to request first: the known one, or one that enforces less if the type's
    schema is not strict."""
    if known is AnswerForm.JSON_SCHEMA and strict_schema(answer_type) is None:
        return AnswerForm.JSON_OBJECT
    return known


def form_fields(
    form: AnswerForm, request: ModelRequest, answer_type: type[BaseModel]
) -> dict[str, Any]:
    """Return `messages`, and `response_format` if the form has one, of a chat completion."""
    instructions = request.instructions
    if form is not AnswerForm.JSON_SCHEMA:
        schema = json.dumps(compact_schema(answer_type), ensure_ascii=False, separators=(",", ":"))
        instructions = f"{instructions}\n\n{_FORM}\n{schema}"
    fields: dict[str, Any] = {
        "messages": [
            {"role": "system", "content": instructions},
            # A lone half of a surrogate pair cannot be sent.
            {"role": "user", "content": request.data.encode("utf-8", "replace").decode()},
        ]
    }
    if form is AnswerForm.JSON_SCHEMA:
        fields["response_format"] = {
            "type": "json_schema",
            "json_schema": {
                "name": request.stage,
                "strict": True,
                "schema": strict_schema(answer_type),
            },
        }
    elif form is AnswerForm.JSON_OBJECT:
        fields["response_format"] = {"type": "json_object"}
    return fields


def read_answer(
    text: str, answer_type: type[AnswerT], check: Callable[[AnswerT], None] | None
) -> AnswerT:
    """Return the object that a text holds, validated.

    Raises UnreadableAnswerError for another structure, InvalidAnswerError if a limit, a validator
    of the model or `check` refuses it.
    """
    found = extract_object(text)
    try:
        answer = answer_type.model_validate_json(found)
    except ValidationError as error:
        _raise_invalid(error)
    if check is not None:
        check(answer)
    return answer


def _raise_invalid(error: ValidationError) -> NoReturn:
    """Raise an error for the first problem, without its input, which is the model's text."""
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    first = problems[0]
    where = ".".join(str(part) for part in first["loc"]) or "the object"
    reason = shorten(clean(f"{where}: {first['msg']}"), _REASON_TOKENS)
    if all(_is_limit(str(problem["type"])) for problem in problems):
        raise InvalidAnswerError(reason) from None
    raise UnreadableAnswerError(reason, extracted=True) from None


def _is_limit(kind: str) -> bool:
    """Return whether a kind of error is about a constraint that a strict schema leaves out."""
    return kind in _MADE_BY_VALIDATORS or _LIMITS.search(kind) is not None


def extract_object(text: str) -> str:
    """Return the one JSON object of a text, as it is written there.

    Thoughts in front of it are removed. Text before and after it, such as a code fence or a
    sentence, is ignored if it has no bracket or brace: then there is no second object, no
    incomplete object and no list around it. Raises UnreadableAnswerError otherwise, and for a key
    that an object has twice or a number that JSON does not have.
    """
    text = strip_thoughts(text)
    begin = _BRACKET.search(text)
    if begin is None:
        raise UnreadableAnswerError("the answer is empty" if not text else "no JSON object")
    if begin[0] != "{":
        raise UnreadableAnswerError("not a JSON object")
    decoder = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
    try:
        _, end = decoder.raw_decode(text, begin.start())
    except (ValueError, RecursionError):
        raise UnreadableAnswerError("an incomplete or invalid JSON object") from None
    if _BRACKET.search(text, end):
        raise UnreadableAnswerError("more than one JSON object, or something after it")
    return text[begin.start() : end]


def strip_thoughts(text: str) -> str:
    """Return a text without the blocks of thoughts in front of the answer.

    An unclosed block extends to the end. If only a closing tag is there, since the server's
    template wrote the opening tag into the prompt, everything up to it is removed. Tags inside the
    JSON object are part of it.
    """
    start = 0
    for closed in _END_OF_THOUGHTS.finditer(text):
        if _START_OF_ANSWER.match(text, start):
            break
        start = closed.end()
    text = text[start:].strip()
    return "" if _THOUGHTS.match(text) else text


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
