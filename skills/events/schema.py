"""The published JSON Schemas of events."""

from __future__ import annotations

import json
from typing import Any

from skills.events.envelope import TYPES, Event


def events_schema() -> str:
    """The JSON Schema of every event, as published under docs/reference."""
    envelope = Event.model_json_schema()
    definitions: dict[str, Any] = envelope.pop("$defs", {})
    kinds = []
    for name, model in TYPES.items():
        schema = model.model_json_schema(ref_template="#/$defs/{model}")
        definitions |= schema.pop("$defs", {}) | {model.__name__: schema}
        reference = {"$ref": f"#/$defs/{model.__name__}"}
        kinds.append({"properties": {"type": {"const": name}, "data": reference}})
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    schema |= envelope | {"oneOf": kinds, "$defs": definitions}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
