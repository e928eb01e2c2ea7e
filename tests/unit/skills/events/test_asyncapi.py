"""The AsyncAPI document: of the form of version 3.0, and true to the events."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from skills.events import (
    EVENT_TYPES,
    EVENTS_CHANNEL,
    REPLIES,
    REPLY_PREFIX,
    REQUESTS,
    check_reply_to,
    parse_event,
)
from skills.events.asyncapi import asyncapi_document
from skills.events.examples import get_example
from skills.events.schema import event_schema, event_schemas, events_schema

DOCUMENT: dict[str, Any] = yaml.load(asyncapi_document(), yaml.CSafeLoader)

REFERENCE = {
    "type": "object",
    "required": ["$ref"],
    "properties": {"$ref": {"type": "string", "pattern": "^#/"}},
    "additionalProperties": False,
}
TEXT = {"type": "string", "minLength": 1}
BINDINGS = {
    "type": "object",
    "properties": {"redis": {"const": {}}, "amqp": {"type": "object"}},
    "required": ["amqp", "redis"],
    "additionalProperties": False,
}


def closed(required: str, optional: str = "", **kinds: Any) -> dict[str, Any]:
    """An object with these members and, as AsyncAPI allows everywhere, extensions `x-…`."""
    known = [*required.split(), *optional.split()]
    return {
        "type": "object",
        "required": required.split(),
        "properties": {name: kinds.get(name, TEXT) for name in known},
        "patternProperties": {"^x-": True},
        "additionalProperties": False,
    }


def each(kind: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "minProperties": 1, "additionalProperties": kind}


def several(kind: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": kind, "uniqueItems": True}


SERVER = closed(
    "host protocol",
    "protocolVersion description variables security",
    variables=each(closed("default", "description")),
    security=several(REFERENCE),
)
CHANNEL = closed(
    "address messages",
    "title description servers parameters bindings",
    servers=several(REFERENCE),
    messages=each(REFERENCE),
    parameters=each(closed("description", "examples", examples=several(TEXT))),
    bindings=BINDINGS,
)
REPLY = closed(
    "address channel messages",
    address=closed("location", "description"),
    channel=REFERENCE,
    messages=several(REFERENCE),
)
OPERATION = closed(
    "action channel messages reply",
    "summary bindings",
    action={"enum": ["receive", "send"]},
    channel=REFERENCE,
    messages=several(REFERENCE),
    bindings=BINDINGS,
    reply=REPLY,
)
MESSAGE = closed(
    "name payload contentType examples correlationId",
    "title summary bindings",
    payload=REFERENCE,
    correlationId=closed("location"),
    bindings=BINDINGS,
    examples=several(closed("name payload", payload={"type": "object"})),
)
FORM = closed(
    "asyncapi info defaultContentType servers channels operations components",
    asyncapi={"const": "3.0.0"},
    info=closed(
        "title version", "description license", license=closed("name url"), description=TEXT
    ),
    servers=each(SERVER),
    channels=each(CHANNEL),
    operations=each(OPERATION),
    components=closed(
        "messages schemas securitySchemes",
        messages=each(MESSAGE),
        schemas=each({"type": "object"}),
        securitySchemes=each(closed("type", "description")),
    ),
)


def nodes(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
    for inner in (
        node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    ):
        yield from nodes(inner)


def resolve(reference: str) -> Any:
    found: Any = DOCUMENT
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    return found


def schema_of(name: str) -> dict[str, Any]:
    """A schema with all that it may refer to, where its references find it."""
    return {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}


def test_it_has_the_form_of_asyncapi_3() -> None:
    jsonschema.Draft7Validator.check_schema(FORM)
    jsonschema.Draft7Validator(FORM).validate(DOCUMENT)


def test_every_reference_resolves() -> None:
    references = [node["$ref"] for node in nodes(DOCUMENT) if isinstance(node.get("$ref"), str)]
    assert len(references) > 50
    for reference in references:
        assert resolve(reference), reference


def test_operations_know_messages_of_their_channels_only() -> None:
    asked, answered = [], set()
    for operation in DOCUMENT["operations"].values():
        for end, prefix in ((operation, "events"), (operation["reply"], "replies")):
            assert end["channel"] == {"$ref": f"#/channels/{prefix}"}
            for message in end["messages"]:
                assert message["$ref"].startswith(f"#/channels/{prefix}/messages/")
        asked += [message["$ref"].rpartition("/")[2] for message in operation["messages"]]
        answered |= {one["$ref"].rpartition("/")[2] for one in operation["reply"]["messages"]}
    assert sorted(asked) == sorted(REQUESTS)
    assert answered == set(REPLIES)


def test_channels_are_those_of_the_program() -> None:
    events, replies = DOCUMENT["channels"]["events"], DOCUMENT["channels"]["replies"]
    assert events["address"] == EVENTS_CHANNEL
    assert events["bindings"]["amqp"]["queue"]["name"] == EVENTS_CHANNEL
    assert set(events["messages"]) == set(REQUESTS)
    assert set(replies["messages"]) == set(REPLIES)
    assert set(re.findall(r"\{(\w+)\}", replies["address"])) == set(replies["parameters"])
    for name in replies["parameters"]["name"]["examples"]:
        check_reply_to(replies["address"].format(name=name))
    assert replies["address"].startswith(REPLY_PREFIX)


@pytest.mark.parametrize("name", sorted(EVENT_TYPES))
def test_every_message_has_a_schema_and_an_example_of_it(name: str) -> None:
    message = DOCUMENT["components"]["messages"][name]
    assert message["payload"] == {"$ref": f"#/components/schemas/{name}"}
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema.Draft7Validator.check_schema(schema)
    validator = jsonschema.Draft7Validator(schema_of(name))
    for example in message["examples"]:
        validator.validate(example["payload"])
        assert parse_event(json.dumps(example["payload"])).type == name
    other = next(kind for kind in EVENT_TYPES if kind != name)
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(message["examples"][0]["payload"] | {"type": other})
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(message["examples"][0]["payload"] | {"data": {"skill_id": 5}})


def test_no_keyword_of_a_newer_dialect_is_left() -> None:
    newer = {"$defs", "prefixItems", "unevaluatedProperties", "dependentSchemas", "$dynamicRef"}
    assert not newer & {key for node in nodes(DOCUMENT) for key in node}


# -- the schemas of single types


@pytest.fixture(scope="module")
def schemas() -> dict[str, str]:
    return event_schemas()


@pytest.fixture(scope="module")
def any_event() -> Any:
    """Validator of all types."""
    return jsonschema.Draft202012Validator(json.loads(events_schema()))


@pytest.mark.parametrize("name", sorted(EVENT_TYPES))
def test_each_type_has_a_schema_that_its_example_fits(
    name: str, schemas: dict[str, str], any_event: Any
) -> None:
    schema = json.loads(schemas[name])
    assert schema == event_schema(name)
    validator = jsonschema.Draft202012Validator(schema)
    assert schema["examples"] == [get_example(name)]
    for example in schema["examples"]:
        validator.validate(example)
        any_event.validate(example)
        for missing in ("id", "source", "type", "data"):
            with pytest.raises(jsonschema.ValidationError):
                validator.validate({key: example[key] for key in example if key != missing})


def test_answers_of_the_examples_belong_to_their_questions() -> None:
    asked = {get_example(name)["id"]: get_example(name) for name in REQUESTS}
    for name in REPLIES:
        answer = get_example(name)
        assert answer["correlationid"] == asked[answer["subject"]]["correlationid"]
