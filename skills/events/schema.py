"""The published JSON Schemas of events."""

from __future__ import annotations

import json
from typing import Any

from skills.events.envelope import EVENT_TYPES, Event, EventData
from skills.events.examples import get_example

_DIALECT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


def events_schema() -> str:
    """Return the JSON Schema of all events, as published under docs/reference."""
    envelope = Event.model_json_schema()
    definitions: dict[str, Any] = envelope.pop("$defs", {})
    kinds = []
    for name, model in EVENT_TYPES.items():
        definitions |= _define(model)
        reference = {"$ref": f"#/$defs/{model.__name__}"}
        kinds.append({"properties": {"type": {"const": name}, "data": reference}})
    return _to_json(_DIALECT | envelope | {"oneOf": kinds, "$defs": definitions})


def event_schemas() -> dict[str, str]:
    """Return type -> the JSON Schema of events of that type only, with an example."""
    return {name: _to_json(event_schema(name)) for name in EVENT_TYPES}


def event_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of events of one type: the envelope with that type's data."""
    model = EVENT_TYPES[name]
    envelope = Event.model_json_schema()
    definitions = {**envelope.pop("$defs", {}), **_define(model)}
    properties = envelope["properties"] | {
        "type": {"const": name},
        "data": {"$ref": f"#/$defs/{model.__name__}"},
    }
    named = {"title": name, "description": definitions[model.__name__].get("description", "")}
    shown = {"examples": [get_example(name)], "$defs": definitions}
    return _DIALECT | envelope | named | {"properties": properties} | shown


def _define(model: type[EventData]) -> dict[str, Any]:
    """Return the schema of a model and of the models in it, by name."""
    schema = model.model_json_schema()
    return {**schema.pop("$defs", {}), model.__name__: schema}


def _to_json(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
