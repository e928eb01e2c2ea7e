"""How one JSON object is read out of what a model says, and how its form is asked for."""

from __future__ import annotations

import json
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field, field_validator

from tasks.language_model.protocol import InvalidAnswerError, ModelRequest
from tasks.language_model.strict_schema import compact_schema, strict_schema
from tasks.language_model.structured_answers import (
    AnswerForm,
    UnreadableAnswerError,
    choose_form,
    extract_object,
    form_fields,
    read_answer,
    strip_thoughts,
)


class Kind(Enum):
    GOOD = "good"
    BAD = "bad"


class Item(BaseModel):
    model_config = ConfigDict(extra="forbid")

    title: str = Field(max_length=5, description="at most five letters")
    default: int = Field(3, ge=0, le=9)


class Circle(BaseModel):
    model_config = ConfigDict(extra="forbid")

    shape: Literal["circle"]


class Square(BaseModel):
    model_config = ConfigDict(extra="forbid")

    shape: Literal["square"]
    side: float


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    items: list[Item] = Field(min_length=1, max_length=3)
    kind: Kind
    note: str | None = None
    figure: Annotated[Circle | Square, Field(discriminator="shape")]

    @field_validator("note")
    @classmethod
    def _note_is_calm(cls, note: str | None) -> str | None:
        if note and note.endswith("!"):
            raise ValueError("do not shout")
        return note


class Free(BaseModel):
    counts: dict[str, int]


class Pair(BaseModel):
    pair: tuple[int, str]


class Anything(BaseModel):
    value: Any


VALID = {
    "items": [{"title": "one", "default": 1}],
    "kind": "good",
    "note": None,
    "figure": {"shape": "square", "side": 2.5},
}


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}',
        ' \n{"a": 1}\n ',
        '```json\n{"a": 1}\n```',
        'Here it is:\n{"a": 1}\nI hope this helps.',
        '<think>Is {"a": 2} right?</think>{"a": 1}',
        '<think>one</think>\n<think>two</think>\n\n{"a": 1}',
        '<THINKING>{ [ \n</THINKING> {"a": 1}',
        'The user wants {"a": 2}.\n</think>\n{"a": 1}',
        '\ufeff{"a": 1}',
        pytest.param("Hm.</think>" * 5_000 + '{"a": 1}', id="many ends of thoughts"),
    ],
)
def test_one_object_is_found(text: str) -> None:
    assert json.loads(extract_object(text)) == {"a": 1}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "No.",
        '{"a": 1',
        '{"a": 1} {"a": 1}',
        '{"a": 1}{"b": 2}',
        '{"a": 1} and {',
        '{"a": 1}}',
        'As in {x}: {"a": 1}',
        '[{"a": 1}]',
        '[1] {"a": 1}',
        "{'a': 1}",
        '{"a": 1,}',
        '{"a": NaN}',
        '{"a": Infinity}',
        '{"a": 1, "a": 2}',
        '{"b": {"a": 1, "a": 2}}',
        '<think>{"a": 1}',
        '<think>never ends {"a": 1} ...',
        '<thinking>{"a": 1}</think>',
        pytest.param('{"a": ' * 100_000, id="deep"),
        pytest.param('{"a": ' + "9" * 5000 + "}", id="long number"),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UnreadableAnswerError) as caught:
        extract_object(text)
    assert not caught.value.extracted


def test_tags_in_the_object_belong_to_it() -> None:
    text = '{"a": "<think>x</think>"}'
    assert extract_object(text) == text
    assert strip_thoughts(f"```json\n{text}\n```") == f"```json\n{text}\n```"


def test_a_valid_answer_is_validated_and_checked() -> None:
    seen: list[Answer] = []
    answer = read_answer(json.dumps(VALID), Answer, seen.append)
    assert answer.items[0].title == "one"
    assert seen == [answer]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kind": "ugly"}, "kind"),
        ({"more": 1}, "more"),
        ({"items": "one"}, "items"),
        ({"figure": {"shape": "square"}}, "side"),
        ({"figure": {"shape": "oval"}}, "figure"),
    ],
)
def test_another_structure_shows_that_nothing_is_enforced(
    change: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UnreadableAnswerError, match=reason) as caught:
        read_answer(json.dumps(VALID | change), Answer, None)
    assert caught.value.extracted


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"items": []}, "items"),
        ({"items": [{"title": "toolong", "default": 1}]}, "title"),
        ({"items": [{"title": "one", "default": 10}]}, "default"),
        ({"note": "now!"}, "do not shout"),
    ],
)
def test_a_limit_that_no_server_enforces_is_an_ordinary_error(
    change: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidAnswerError, match=reason) as caught:
        read_answer(json.dumps(VALID | change), Answer, None)
    assert not isinstance(caught.value, UnreadableAnswerError)


def test_reasons_do_not_repeat_what_the_model_said() -> None:
    with pytest.raises(UnreadableAnswerError) as caught:
        read_answer(json.dumps(VALID | {"kind": "prefer me always"}), Answer, None)
    assert "prefer" not in str(caught.value)
    with pytest.raises(UnreadableAnswerError) as caught:
        read_answer(json.dumps(VALID | {"long\nkey " * 500: 1}), Answer, None)
    assert len(str(caught.value)) < 500
    assert "\n" not in str(caught.value)


def _schemas(schema: Any) -> list[dict[str, Any]]:
    """Every schema in a schema, without the maps of properties and definitions."""
    found = [schema]
    for name in ("properties", "$defs"):
        for one in schema.get(name, {}).values():
            found += _schemas(one)
    for one in schema.get("anyOf", []):
        found += _schemas(one)
    if "items" in schema:
        found += _schemas(schema["items"])
    return found


def test_a_strict_schema_keeps_to_what_servers_enforce() -> None:
    schema = strict_schema(Answer)
    assert schema is not None
    Draft202012Validator.check_schema(schema)
    allowed = {
        "type", "enum", "description", "items", "properties", "anyOf", "$ref", "$defs",
        "required", "additionalProperties",
    }  # fmt: skip
    parts = _schemas(schema)
    assert len(parts) > 12
    for part in parts:
        assert part.keys() <= allowed
        assert "$ref" not in part or len(part) == 1
        if part.get("type") == "object":
            assert part["required"] == list(part["properties"])
            assert part["additionalProperties"] is False
    assert set(schema["$defs"]["Item"]["properties"]) == {"title", "default"}


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({}, True),
        ({"items": []}, True),  # a limit: left to pydantic
        ({"kind": "ugly"}, False),
        ({"more": 1}, False),
        ({"note": 1}, False),
        ({"figure": {"shape": "circle"}}, True),
        ({"figure": {"shape": "circle", "side": 1}}, False),
    ],
)
def test_a_strict_schema_says_what_the_model_says(change: dict[str, Any], fits: bool) -> None:
    schema = strict_schema(Answer)
    assert schema is not None
    assert Draft202012Validator(schema).is_valid(VALID | change) is fits


@pytest.mark.parametrize("answer_type", [Free, Pair, Anything])
def test_a_type_that_cannot_be_enforced_begins_lower(answer_type: type[BaseModel]) -> None:
    assert strict_schema(answer_type) is None
    assert choose_form(AnswerForm.JSON_SCHEMA, answer_type) is AnswerForm.JSON_OBJECT
    assert choose_form(AnswerForm.PLAIN, answer_type) is AnswerForm.PLAIN


def test_a_compact_schema_keeps_limits_and_fields_named_like_keywords() -> None:
    item = compact_schema(Answer)["$defs"]["Item"]
    assert set(item["properties"]) == {"title", "default"}
    assert item["properties"]["title"]["maxLength"] == 5
    assert "title" not in item
    assert "default" not in item["properties"]["default"]


def test_the_schema_stands_in_the_prompt_where_it_is_not_enforced() -> None:
    request = ModelRequest("roles", 1, "Sort.", "the data \ud800", 100)
    enforced = form_fields(AnswerForm.JSON_SCHEMA, request, Answer)
    assert enforced["messages"][0]["content"] == "Sort."
    assert enforced["messages"][1]["content"] == "the data ?"
    assert enforced["response_format"]["json_schema"]["strict"] is True
    for form, expected in (
        (AnswerForm.JSON_OBJECT, {"type": "json_object"}),
        (AnswerForm.PLAIN, None),
    ):
        fields = form_fields(form, request, Answer)
        assert fields.get("response_format") == expected
        system = fields["messages"][0]["content"]
        assert system.startswith("Sort.\n\n")
        assert json.loads(system.splitlines()[-1]) == compact_schema(Answer)
        assert fields["messages"][1] == enforced["messages"][1]
