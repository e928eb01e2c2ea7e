"""Events: CloudEvents 1.0 in and out, and their published schema."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from config.errors import UsageError
from skills.events import (
    QUERY_ASKED,
    SOURCE_CHANGED,
    Event,
    EventData,
    QueryAsked,
    QueryFilters,
    SkillRemoved,
    SourceChanged,
    SourceRemoved,
    new_event,
    parse_event,
)
from skills.events.schema import events_schema
from tests.support.samples.events import attributes

EXAMPLES: list[EventData] = [
    SourceChanged(source_id="team", root="/skills", paths=("a/SKILL.md", "b")),
    SkillRemoved(skill_id="team:a"),
    SourceRemoved(source_id="team"),
    QueryAsked(task="plan a trip", budget=100, filters=QueryFilters(licence=("MIT",))),
]


def envelope(**changes: Any) -> str:
    """Those that are None are left out."""
    kept = {name: value for name, value in attributes(**changes).items() if value is not None}
    return json.dumps(kept)


@pytest.mark.parametrize("data", EXAMPLES, ids=lambda data: type(data).__name__)
def test_an_event_survives_json(data: EventData) -> None:
    event = new_event(data, "test")
    again = parse_event(event.model_dump_json())
    assert again == event
    assert again.parse_data() == data


def test_every_event_has_an_id_of_its_own() -> None:
    assert new_event(EXAMPLES[0], "test").id != new_event(EXAMPLES[0], "test").id


def test_extension_attributes_are_kept() -> None:
    event = parse_event(envelope(traceparent="00-ab-cd-01"))
    assert json.loads(event.model_dump_json())["traceparent"] == "00-ab-cd-01"


def test_data_about_sources_may_grow_and_queries_may_not() -> None:
    data = {"source_id": "team", "root": "/skills", "since": 5}
    assert parse_event(envelope(data=data)).parse_data() == SourceChanged(
        source_id="team", root="/skills"
    )
    with pytest.raises(UsageError, match="colour"):
        parse_event(envelope(type=QUERY_ASKED, data={"task": "x", "colour": "red"}))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "CloudEvents"),
        ("[]", "CloudEvents"),
        (envelope(specversion="0.3"), "specversion"),
        (envelope(id=""), "id"),
        (envelope(id="x" * 201), "id"),
        (envelope(source=None), "source"),
        (envelope(time="yesterday"), "time"),
        (envelope(data=None), "data"),
        (envelope(datacontenttype="text/plain"), "datacontenttype"),
        (envelope(type="skillbus.unheard.of.v1"), r"skillbus\.source\.changed\.v1"),
        (envelope(data={"source_id": "a:b", "root": "/x"}), "source_id"),
        (envelope(data={"source_id": "/up", "root": "/x"}), "source_id"),
        (envelope(data={"source_id": "", "root": "/x"}), "source_id"),
        (envelope(data={"source_id": "a b", "root": "/x"}), "source_id"),
        (envelope(data={"source_id": "a", "root": 5}), "root"),
        (envelope(type=QUERY_ASKED, data={"task": "x", "budget": 0}), "budget"),
        (envelope(type=QUERY_ASKED, data={"task": "x", "top": 101}), "top"),
    ],
)
def test_what_is_wrong_with_an_event_is_said(text: str, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        parse_event(text)


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(events_schema())
    jsonschema.Draft202012Validator.check_schema(found)
    return found


@pytest.mark.parametrize("data", EXAMPLES, ids=lambda data: type(data).__name__)
def test_the_schema_takes_every_event(schema: dict[str, Any], data: EventData) -> None:
    event = json.loads(new_event(data, "test").model_dump_json())
    jsonschema.validate(event, schema)


def test_the_schema_refuses_data_of_another_type(schema: dict[str, Any]) -> None:
    event = json.loads(new_event(SkillRemoved(skill_id="team:a"), "test").model_dump_json())
    event["type"] = SOURCE_CHANGED
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(event, schema)


def test_content_of_an_unchecked_event_is_checked_too() -> None:
    event = Event.model_validate_json(envelope(data={"root": "/x"}))
    with pytest.raises(UsageError, match="event 1: source_id"):
        event.parse_data()
